package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		limit, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		if limit.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		} else if !slices.Contains(
			[]corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim},
			limit.Type) {
			errs = append(errs, validate.Invalid(at.Child("type"), limit.Type, limitTypeErrors(string(limit.Type)))...)
		}
		if seen[limit.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), limit.Type))
		}
		seen[limit.Type] = true
		errs = append(errs, validateLimit(limit, at)...)
	}
	return errs
}

// limitTypeErrors returns why a type that is not Kubernetes' own is invalid. Such types need a domain.
func limitTypeErrors(name string) []string {
	if !strings.Contains(name, "/") {
		return []string{"must be a standard limit type or fully qualified"}
	}
	return validation.IsQualifiedName(name)
}

func validateLimit(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	lists := []struct {
		name, text string
		list       corev1.ResourceList
	}{{"min", "min", l.Min}, {"max", "max", l.Max}, {"default", "default", l.Default},
		{"defaultRequest", "default request", l.DefaultRequest},
		{"maxLimitRequestRatio", "ratio", l.MaxLimitRequestRatio}}
	for _, side := range lists {
		for name, q := range side.list {
			errs = append(errs, validateLimitedResource(l.Type, name, at.Child(side.name).Key(string(name)))...)
			if q.Sign() < 0 {
				errs = append(errs,
					field.Invalid(at.Child(side.name).Key(string(name)), q.String(), validate.NotNegativeText))
			}
		}
	}
	if l.Type == corev1.LimitTypePod {
		for _, side := range lists[2:4] {
			if len(side.list) > 0 {
				errs = append(errs, field.Forbidden(at.Child(side.name), "may not be specified when `type` is 'Pod'"))
			}
		}
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMinimum := l.Min[corev1.ResourceStorage]
		if _, hasMaximum := l.Max[corev1.ResourceStorage]; !hasMinimum && !hasMaximum {
			errs = append(errs, field.Required(at.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	ordered := func(low, high int, child string) {
		for name, a := range lists[low].list {
			if b, ok := lists[high].list[name]; ok && a.Cmp(b) > 0 {
				shown := a
				if child == lists[high].name {
					shown = b
				}
				errs = append(errs, field.Invalid(at.Child(child).Key(string(name)), shown.String(), fmt.Sprintf(
					"%s value %s is greater than %s value %s", lists[low].text, a.String(),
					limitText(lists[high].text, lists[low].text), b.String())))
			}
		}
	}
	ordered(0, 1, "min")
	ordered(0, 3, "defaultRequest")
	ordered(3, 1, "defaultRequest")
	ordered(3, 2, "defaultRequest")
	ordered(0, 2, "default")
	ordered(2, 1, "default")
	return append(errs, validateRatio(l, at.Child("maxLimitRequestRatio"))...)
}

// limitText returns the name of a default in a message that also names the default request.
func limitText(text, beside string) string {
	if text == "default" && beside == "default request" {
		return "default limit"
	}
	return text
}

// validateRatio requires that the minimum and maximum are compatible with the maximum ratio of limits to requests.
func validateRatio(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	one := *resource.NewQuantity(1, resource.DecimalSI)
	for name, ratio := range l.MaxLimitRequestRatio {
		if ratio.Cmp(one) < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), ratio.String(),
				fmt.Sprintf("ratio %s is less than 1", ratio.String())))
		}
		minimum, ok := l.Min[name]
		maximum, also := l.Max[name]
		if !ok || !also || minimum.IsZero() {
			continue
		}
		widest := maximum.AsApproximateFloat64() / minimum.AsApproximateFloat64()
		if ratio.AsApproximateFloat64() > widest {
			errs = append(errs, field.Invalid(at.Key(string(name)), ratio.String(), fmt.Sprintf(
				"ratio %s is greater than max/min = %f", ratio.String(), widest)))
		}
	}
	return errs
}

// validateLimitedResource checks the name of a limited resource, for pods and containers or for claims.
func validateLimitedResource(t corev1.LimitType, name corev1.ResourceName, at *field.Path) field.ErrorList {
	if t == corev1.LimitTypePod || t == corev1.LimitTypeContainer {
		return validate.ResourceName(name, at)
	}
	return validate.Invalid(at, name, validation.IsQualifiedName(string(name)))
}

// countedResources lists the quota resources that are numbers of objects, besides count/….
var countedResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
	corev1.ResourceServicesLoadBalancers,
}

var quotaScopes = []corev1.ResourceQuotaScope{
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
	corev1.ResourceQuotaScopeNotBestEffort,
	corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
	corev1.ResourceQuotaScopeVolumeAttributesClass,
}

func validateQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaAmounts(q.Spec.Hard, field.NewPath("spec", "hard"))
	path := field.NewPath("spec", "scopes")
	seen := map[corev1.ResourceQuotaScope]bool{}
	for _, scope := range q.Spec.Scopes {
		if !slices.Contains(quotaScopes, scope) {
			errs = append(errs, field.Invalid(path, q.Spec.Scopes, "unsupported scope"))
		}
		errs = append(errs, validateScope(scope, q, path)...)
		seen[scope] = true
	}
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if seen[pair[0]] && seen[pair[1]] {
			errs = append(errs, field.Invalid(path, q.Spec.Scopes, "conflicting scopes"))
		}
	}
	return append(errs, validateScopeSelector(q.Spec.ScopeSelector,
		field.NewPath("spec", "scopeSelector", "matchExpressions"))...)
}

// validateQuotaAmounts checks the amounts of a quota's limits or usage.
func validateQuotaAmounts(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, amount := range list {
		at := path.Key(string(name))
		errs = append(errs, validateQuotaName(name, at)...)
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(at, amount.String(), validate.NotNegativeText))
		}
		if slices.Contains(countedResources, name) && amount.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be an integer"))
		}
	}
	return errs
}

func validateQuotaName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validate.Invalid(at, name, validation.IsQualifiedName(string(name)))
	if len(errs) > 0 || strings.Contains(string(name), "/") {
		return errs
	}
	base := strings.TrimPrefix(strings.TrimPrefix(string(name), "requests."), "limits.")
	isKnown := slices.Contains(countedResources, name) ||
		slices.Contains(validate.StandardResources, corev1.ResourceName(base)) ||
		base == string(corev1.ResourceStorage) ||
		strings.HasPrefix(base, corev1.ResourceHugePagesPrefix)
	if !isKnown {
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource for quota")}
	}
	return nil
}

// validateScope rejects resources that do not fit a scope: BestEffort pods have no requests to count.
func validateScope(scope corev1.ResourceQuotaScope, q *corev1.ResourceQuota, path *field.Path) field.ErrorList {
	if scope != corev1.ResourceQuotaScopeBestEffort {
		return nil
	}
	for name := range q.Spec.Hard {
		if name != corev1.ResourcePods && name != "count/pods" {
			return field.ErrorList{field.Invalid(path, q.Spec.Scopes, "unsupported scope applied to resource")}
		}
	}
	return nil
}

func validateScopeSelector(s *corev1.ScopeSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	for _, r := range s.MatchExpressions {
		if !slices.Contains(quotaScopes, r.ScopeName) {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		existing := r.ScopeName != corev1.ResourceQuotaScopePriorityClass &&
			r.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass
		if existing && r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
				"must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, "+
					"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort "+
					"or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(path.Child("values"),
					"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) != 0 {
				errs = append(errs, field.Invalid(path.Child("values"), r.Values,
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	return errs
}

func validateQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	return append(validateQuotaAmounts(q.Status.Hard, path.Child("hard")),
		validateQuotaAmounts(q.Status.Used, path.Child("used"))...)
}
