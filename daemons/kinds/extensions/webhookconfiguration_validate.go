package extensions

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/kinds/validate"
)

// maxConditions is the maximum number of match conditions of a webhook or policy.
const maxConditions = 64

// reviewVersions lists the versions of AdmissionReview that the API server can send.
var reviewVersions = []string{"v1", "v1beta1"}

func validateWebhooks(hooks, old []admissionregistrationv1.MutatingWebhook) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, h := range hooks {
		at := field.NewPath("webhooks").Index(i)
		if seen.Has(h.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), h.Name))
		}
		seen.Insert(h.Name)
		errs = append(errs, validateWebhook(at, h)...)
		errs = append(
			errs,
			validateConditions(
				at.Child("matchConditions"),
				h.MatchConditions,
				func(c admissionregistrationv1.MatchCondition) error {
					if wasAccepted(c, old) {
						return nil
					}
					return expression.CheckCondition(c.Expression)
				},
			)...)
	}
	return errs
}

func validateWebhook(at *field.Path, h admissionregistrationv1.MutatingWebhook) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(at.Child("name"), h.Name)
	errs = append(errs, validateReviewVersions(at.Child("admissionReviewVersions"), h.AdmissionReviewVersions)...)
	for i, r := range h.Rules {
		errs = append(errs, validateRule(at.Child("rules").Index(i), r)...)
	}
	errs = append(errs, requireKnown(at.Child("failurePolicy"), h.FailurePolicy, admissionregistrationv1.Fail,
		admissionregistrationv1.Ignore)...)
	errs = append(errs, requireKnown(at.Child("matchPolicy"), h.MatchPolicy, admissionregistrationv1.Equivalent,
		admissionregistrationv1.Exact)...)
	errs = append(errs, requireKnown(at.Child("reinvocationPolicy"), h.ReinvocationPolicy,
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, requireKnown(at.Child("sideEffects"), h.SideEffects,
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t,
			"the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("objectSelector"))...)
	client := at.Child("clientConfig")
	switch c := h.ClientConfig; {
	case (c.URL == nil) == (c.Service == nil):
		errs = append(errs, field.Required(client, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, webhook.ValidateWebhookURL(client.Child("url"), *c.URL, true)...)
	default:
		errs = append(errs, webhook.ValidateWebhookService(client.Child("service"), c.Service.Namespace, c.Service.Name,
			c.Service.Path, *c.Service.Port)...)
	}
	return errs
}

// requireKnown rejects a value that is set and not in the list.
func requireKnown[T ~string](at *field.Path, value *T, of ...T) field.ErrorList {
	if value == nil || slices.Contains(of, *value) {
		return nil
	}
	return field.ErrorList{validate.NotSupported(at, *value, of)}
}

func validateReviewVersions(at *field.Path, versions []string) field.ErrorList {
	var errs field.ErrorList
	if len(versions) < 1 {
		return append(errs, field.Required(at, "must specify one of "+strings.Join(reviewVersions, ", ")))
	}
	seen, usable := sets.New[string](), false
	for i, v := range versions {
		if seen.Has(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		seen.Insert(v)
		for _, reason := range utilvalidation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, reason))
		}
		usable = usable || slices.Contains(reviewVersions, v)
	}
	if !usable && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, versions,
			"must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

// validateRule checks which requests a rule matches.
func validateRule(at *field.Path, r admissionregistrationv1.RuleWithOperations) field.ErrorList {
	var errs field.ErrorList
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations,
			"if '*' is present, must not specify other operations"))
	}
	for i := range r.Operations {
		errs = append(errs, requireKnown(at.Child("operations").Index(i), &r.Operations[i],
			admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
			admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	errs = append(errs, validateWildcard(at.Child("apiGroups"), r.APIGroups,
		"if '*' is present, must not specify other API groups", true)...)
	errs = append(errs, validateWildcard(at.Child("apiVersions"), r.APIVersions,
		"if '*' is present, must not specify other API versions", false)...)
	errs = append(errs, validateResources(at.Child("resources"), r.Resources)...)
	return append(errs, requireKnown(at.Child("scope"), r.Scope, admissionregistrationv1.ClusterScope,
		admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes)...)
}

func validateWildcard(at *field.Path, names []string, alone string, mayBeEmpty bool) field.ErrorList {
	var errs field.ErrorList
	if len(names) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(names) > 1 && slices.Contains(names, "*") {
		errs = append(errs, field.Invalid(at, names, alone))
	}
	for i, name := range names {
		if name == "" && !mayBeEmpty {
			errs = append(errs, field.Required(at.Index(i), ""))
		}
	}
	return errs
}

// validateResources rejects redundant resources: a/b beside a/* or */b, and anything beside */*.
func validateResources(at *field.Path, resources []string) field.ErrorList {
	var errs field.ErrorList
	if len(resources) == 0 {
		return append(errs, field.Required(at, ""))
	}
	every, whole, whichever := false, sets.New[string](), sets.New[string]()
	for i, text := range resources {
		if text == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		name, sub, _ := strings.Cut(text, "/")
		if text == "*/*" {
			every = true
		}
		if whole.Has(name) {
			errs = append(errs, field.Invalid(at.Index(i), text, "if '"+name+"/*' is present, must not specify "+text))
		}
		if whichever.Has(sub) {
			errs = append(errs, field.Invalid(at.Index(i), text, "if '*/"+sub+"' is present, must not specify "+text))
		}
		if sub == "*" {
			whole.Insert(name)
		}
		if name == "*" {
			whichever.Insert(sub)
		}
	}
	if len(resources) > 1 && every {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	return errs
}

func validateConditions(
	at *field.Path,
	list []admissionregistrationv1.MatchCondition,
	compiles func(admissionregistrationv1.MatchCondition) error,
) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxConditions {
		errs = append(errs, field.TooMany(at, len(list), maxConditions))
	}
	seen := sets.New[string]()
	for i, c := range list {
		if strings.TrimSpace(c.Expression) == "" {
			errs = append(errs, field.Required(at.Index(i).Child("expression"), ""))
		} else if err := compiles(c); err != nil {
			errs = append(errs, field.Invalid(at.Index(i).Child("expression"), c.Expression, err.Error()))
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Index(i).Child("name"), ""))
			continue
		}
		for _, reason := range utilvalidation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), c.Name, reason))
		}
		if seen.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), c.Name))
		}
		seen.Insert(c.Name)
	}
	return errs
}
