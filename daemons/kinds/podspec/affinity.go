package podspec

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

func ValidateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` "+
				"is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, validate.LabelValue(t.Value, at.Child("operator"))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t,
					"value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value,
					"must be an integer when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			errs = append(errs, validate.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(
				errs,
				validate.Supported(
					t.Effect,
					[]corev1.TaintEffect{
						corev1.TaintEffectNoSchedule,
						corev1.TaintEffectPreferNoSchedule,
						corev1.TaintEffectNoExecute,
					},
					at.Child("effect"),
				)...)
		}
	}
	return errs
}

func validateAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			terms := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
			if len(r.NodeSelectorTerms) == 0 {
				errs = append(errs, field.Required(terms, "must have at least one node selector term"))
			}
			for i, t := range r.NodeSelectorTerms {
				errs = append(errs, validate.NodeTerm(t, terms.Index(i))...)
			}
		}
		for i, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			one := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, validateWeight(p.Weight, one.Child("weight"))...)
			errs = append(errs, validate.NodeTerm(p.Preference, one.Child("preference"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

func validateWeight(n int32, path *field.Path) field.ErrorList {
	if n < 1 || n > 100 {
		return field.ErrorList{field.Invalid(path, n, "must be in the range 1-100")}
	}
	return nil
}

func validatePodTerms(
	required []corev1.PodAffinityTerm,
	preferred []corev1.WeightedPodAffinityTerm,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i, t := range required {
		errs = append(errs, validatePodTerm(t,
			path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i, t := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(t.Weight, at.Child("weight"))...)
		errs = append(errs, validatePodTerm(t.PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(t corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, metavalidation.LabelSelectorValidationOptions{},
		path.Child("labelSelector"))
	errs = append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector,
		metavalidation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
	for i, ns := range t.Namespaces {
		errs = append(errs, validate.DNSLabel(ns, path.Child("namespaces").Index(i))...)
	}
	errs = append(errs, validateMatchKeys(t.MatchLabelKeys, t.LabelSelector, path.Child("matchLabelKeys"))...)
	errs = append(errs, validateMatchKeys(t.MismatchLabelKeys, t.LabelSelector, path.Child("mismatchLabelKeys"))...)
	errs = append(errs, validateSelectedTwice(t.MatchLabelKeys, t.LabelSelector, path)...)
	for i, key := range t.MatchLabelKeys {
		if slices.Contains(t.MismatchLabelKeys, key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key,
				"exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	if t.TopologyKey == "" {
		return append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey"))...)
}

func validateSpread(list []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range list {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		} else {
			errs = append(errs, metavalidation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey"))...)
		}
		errs = append(errs, validate.Supported(c.WhenUnsatisfiable,
			[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway},
			at.Child("whenUnsatisfiable"))...)
		if id := c.TopologyKey + "/" + string(c.WhenUnsatisfiable); seen[id] {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
				"{"+c.TopologyKey+", "+string(c.WhenUnsatisfiable)+"}"))
		} else {
			seen[id] = true
		}
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+string(c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
		for name, p := range map[string]*corev1.NodeInclusionPolicy{"nodeAffinityPolicy": c.NodeAffinityPolicy,
			"nodeTaintsPolicy": c.NodeTaintsPolicy} {
			if p != nil {
				errs = append(errs, validate.Supported(*p,
					[]corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore},
					at.Child(name))...)
			}
		}
		errs = append(errs, validateMatchKeys(c.MatchLabelKeys, c.LabelSelector, at.Child("matchLabelKeys"))...)
		errs = append(errs, validateSelectedTwice(c.MatchLabelKeys, c.LabelSelector, at)...)
	}
	return errs
}

// validateMatchKeys checks matchLabelKeys or mismatchLabelKeys: labels whose values are taken from the pod itself.
func validateMatchKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) > 0 && selector == nil {
		return field.ErrorList{field.Forbidden(path, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

// validateSelectedTwice rejects matchLabelKeys that the selector also contains: at creation, a pod's selector already
// gets an expression for each of them. mismatchLabelKeys may also be in the selector, to exclude more values.
func validateSelectedTwice(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	named := map[string]bool{}
	for key := range selector.MatchLabels {
		named[key] = true
	}
	for _, e := range selector.MatchExpressions {
		if i := slices.Index(keys, e.Key); i >= 0 && named[e.Key] {
			errs = append(errs, field.Invalid(path.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
		}
		named[e.Key] = true
	}
	return errs
}
