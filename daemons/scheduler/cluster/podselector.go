package cluster

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// PodSelector selects pods by namespace and labels, for a term, a constraint or a workload. Equal selections have the
// same id and share their tables.
type PodSelector struct {
	id                string
	namespaces        map[string]bool
	namespaceSelector labels.Selector // selects namespaces by their labels; nil selects none
	selector          labels.Selector
	requiredLabel     label          // a label that every selected pod has, if one is known
	intersection      []*PodSelector // if not nil, the selection is the intersection of these
}

// label is a key and a value.
type label struct{ key, value string }

func newPodSelector(namespaces []string, namespaced, selector labels.Selector) *PodSelector {
	a := &PodSelector{namespaces: map[string]bool{}, namespaceSelector: namespaced, selector: selector}
	for _, ns := range namespaces {
		a.namespaces[ns] = true
	}
	var b strings.Builder
	for _, ns := range slices.Sorted(maps.Keys(a.namespaces)) {
		b.WriteString(ns + ",")
	}
	b.WriteByte('|')
	if namespaced != nil {
		b.WriteString("?" + namespaced.String())
	}
	b.WriteByte('|')
	requirements, selectable := selector.Requirements()
	if !selectable {
		b.WriteString("none")
	}
	b.WriteString(selector.String())
	for _, r := range requirements {
		if (r.Operator() == selection.In || r.Operator() == selection.Equals ||
			r.Operator() == selection.DoubleEquals) &&
			r.Values().Len() == 1 {
			a.requiredLabel = label{r.Key(), r.ValuesUnsorted()[0]}
			break
		}
	}
	a.id = b.String()
	return a
}

// intersectSelectors returns the intersection of selections.
func intersectSelectors(all []*PodSelector) *PodSelector {
	if len(all) == 1 {
		return all[0]
	}
	a := &PodSelector{intersection: all}
	for _, one := range all {
		a.id += one.id + "&"
		if one.requiredLabel.key != "" {
			a.requiredLabel = one.requiredLabel
		}
	}
	return a
}

// parseTerm reads an affinity term of a pod. At creation, the API server added matchLabelKeys to the selector. That
// selector stays valid if the pod's labels change later.
func parseTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm) *PodSelector {
	selector := compileSelector(t.LabelSelector)
	for _, key := range t.MatchLabelKeys {
		if !hasExpression(t.LabelSelector, key, metav1.LabelSelectorOpIn) {
			selector = withLabelValue(selector, pod, key, selection.In)
		}
	}
	for _, key := range t.MismatchLabelKeys {
		if !hasExpression(t.LabelSelector, key, metav1.LabelSelectorOpNotIn) {
			selector = withLabelValue(selector, pod, key, selection.NotIn)
		}
	}
	if t.NamespaceSelector == nil && len(t.Namespaces) == 0 {
		return newPodSelector([]string{pod.Namespace}, nil, selector)
	}
	var namespaced labels.Selector
	if t.NamespaceSelector != nil {
		namespaced = compileSelector(t.NamespaceSelector)
	}
	return newPodSelector(t.Namespaces, namespaced, selector)
}

// hasExpression reports whether a selector has an expression with this key and operator.
func hasExpression(s *metav1.LabelSelector, key string, operator metav1.LabelSelectorOperator) bool {
	return s != nil && slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == key && r.Operator == operator
	})
}

// withLabelValue narrows a selector by the pod's value of a label. If the pod lacks the label, the selector stays
// unchanged.
func withLabelValue(s labels.Selector, pod *corev1.Pod, key string, operator selection.Operator) labels.Selector {
	value, ok := pod.Labels[key]
	if !ok {
		return s
	}
	r, err := labels.NewRequirement(key, operator, []string{value})
	if err != nil {
		return s
	}
	return s.Add(*r)
}

// compileSelector compiles a selector. An invalid one selects nothing.
func compileSelector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// matches reports whether a selects pods with these labels in this namespace. namespaces holds the labels of the known
// namespaces.
func (a *PodSelector) matches(namespace string, podLabels map[string]string,
	namespaces map[string]map[string]string) bool {
	if a.intersection != nil {
		for _, one := range a.intersection {
			if !one.matches(namespace, podLabels, namespaces) {
				return false
			}
		}
		return true
	}
	if !a.namespaces[namespace] {
		if a.namespaceSelector == nil {
			return false
		}
		// An unknown namespace matches only an empty namespace selector.
		if namespaceLabels, ok := namespaces[namespace]; !a.namespaceSelector.Empty() &&
			(!ok || !a.namespaceSelector.Matches(labels.Set(namespaceLabels))) {
			return false
		}
	}
	return a.selector.Matches(labels.Set(podLabels))
}

// needsNamespaceLabels reports whether the selection depends on labels of namespaces.
func (a *PodSelector) needsNamespaceLabels() bool {
	return a.namespaceSelector != nil && !a.namespaceSelector.Empty() ||
		slices.ContainsFunc(a.intersection, (*PodSelector).needsNamespaceLabels)
}

func (s *Shape) readTerms(pod *corev1.Pod) {
	read := func(list []corev1.PodAffinityTerm) (out []Term) {
		for i := range list {
			out = append(out, Term{parseTerm(pod, &list[i]), list[i].TopologyKey, 1})
		}
		return out
	}
	weighted := func(list []corev1.WeightedPodAffinityTerm) (out []Term) {
		for i := range list {
			out = append(
				out,
				Term{parseTerm(pod, &list[i].PodAffinityTerm), list[i].PodAffinityTerm.TopologyKey,
					int64(list[i].Weight)},
			)
		}
		return out
	}
	if pod.Spec.Affinity == nil {
		return
	}
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		s.Affinity = read(a.RequiredDuringSchedulingIgnoredDuringExecution)
		s.PreferredAffinity = weighted(a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		s.AntiAffinity = read(a.RequiredDuringSchedulingIgnoredDuringExecution)
		s.PreferredAntiAffinity = weighted(a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if len(s.Affinity) > 0 {
		var all []*PodSelector
		for _, t := range s.Affinity {
			all = append(all, t.PodSelector)
		}
		s.AffinityIntersection = intersectSelectors(all)
	}
	for _, t := range s.AntiAffinity {
		s.weightedTerms = append(s.weightedTerms, weightedTerm{t, weights{anti: 1}})
	}
	for _, t := range s.Affinity {
		s.weightedTerms = append(s.weightedTerms, weightedTerm{t, weights{affinity: 1}})
	}
	for _, t := range s.PreferredAffinity {
		s.weightedTerms = append(s.weightedTerms, weightedTerm{t, weights{preferred: t.Weight}})
	}
	for _, t := range s.PreferredAntiAffinity {
		s.weightedTerms = append(s.weightedTerms, weightedTerm{t, weights{preferred: -t.Weight}})
	}
}

func (s *Shape) readConstraints(pod *corev1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		selector := compileSelector(c.LabelSelector)
		for _, key := range c.MatchLabelKeys {
			selector = withLabelValue(selector, pod, key, selection.In)
		}
		one := Constraint{
			PodSelector: newPodSelector([]string{pod.Namespace}, nil,
				selector), Key: c.TopologyKey, MaxSkew: int(c.MaxSkew), MinDomains: 1,
			Required:   c.WhenUnsatisfiable == corev1.DoNotSchedule,
			HonorNodes: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			HonorTaint: c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		}
		if c.MinDomains != nil {
			one.MinDomains = int(*c.MinDomains)
		}
		s.Constraints = append(s.Constraints, one)
	}
}
