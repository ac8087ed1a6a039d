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

// About selects pods by namespace and labels, for a term, a constraint or a workload. Equal selections have the same id
// and share their tables.
type About struct {
	id         string
	namespaces map[string]bool
	namespaced labels.Selector // selects namespaces by their labels; nil selects none
	selector   labels.Selector
	pin        label    // a label that every selected pod has, if one is known
	all        []*About // if not nil, the selection is the intersection of these
}

// label is a key and a value.
type label struct{ key, value string }

func newAbout(namespaces []string, namespaced, selector labels.Selector) *About {
	a := &About{namespaces: map[string]bool{}, namespaced: namespaced, selector: selector}
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
			a.pin = label{r.Key(), r.ValuesUnsorted()[0]}
			break
		}
	}
	a.id = b.String()
	return a
}

// together returns the intersection of selections.
func together(all []*About) *About {
	if len(all) == 1 {
		return all[0]
	}
	a := &About{all: all}
	for _, one := range all {
		a.id += one.id + "&"
		if one.pin.key != "" {
			a.pin = one.pin
		}
	}
	return a
}

// about reads an affinity term of a pod. At creation, the API server added matchLabelKeys to the selector. That
// selector stays valid if the pod's labels change later.
func about(pod *corev1.Pod, t *corev1.PodAffinityTerm) *About {
	selector := selectorOf(t.LabelSelector)
	for _, key := range t.MatchLabelKeys {
		if !expressed(t.LabelSelector, key, metav1.LabelSelectorOpIn) {
			selector = also(selector, pod, key, selection.In)
		}
	}
	for _, key := range t.MismatchLabelKeys {
		if !expressed(t.LabelSelector, key, metav1.LabelSelectorOpNotIn) {
			selector = also(selector, pod, key, selection.NotIn)
		}
	}
	if t.NamespaceSelector == nil && len(t.Namespaces) == 0 {
		return newAbout([]string{pod.Namespace}, nil, selector)
	}
	var namespaced labels.Selector
	if t.NamespaceSelector != nil {
		namespaced = selectorOf(t.NamespaceSelector)
	}
	return newAbout(t.Namespaces, namespaced, selector)
}

// expressed reports whether a selector has an expression with this key and operator.
func expressed(s *metav1.LabelSelector, key string, operator metav1.LabelSelectorOperator) bool {
	return s != nil && slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == key && r.Operator == operator
	})
}

// also narrows a selector by the pod's value of a label. If the pod lacks the label, the selector stays unchanged.
func also(s labels.Selector, pod *corev1.Pod, key string, operator selection.Operator) labels.Selector {
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

// selectorOf compiles a selector. An invalid one selects nothing.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// chooses reports whether a selects pods with these labels in this namespace. namespaces holds the labels of the known
// namespaces.
func (a *About) chooses(namespace string, podLabels map[string]string, namespaces map[string]map[string]string) bool {
	if a.all != nil {
		for _, one := range a.all {
			if !one.chooses(namespace, podLabels, namespaces) {
				return false
			}
		}
		return true
	}
	if !a.namespaces[namespace] {
		if a.namespaced == nil {
			return false
		}
		// An unknown namespace matches only an empty namespace selector.
		if known, ok := namespaces[namespace]; !a.namespaced.Empty() &&
			(!ok || !a.namespaced.Matches(labels.Set(known))) {
			return false
		}
	}
	return a.selector.Matches(labels.Set(podLabels))
}

// byNamespace reports whether the selection depends on labels of namespaces.
func (a *About) byNamespace() bool {
	return a.namespaced != nil && !a.namespaced.Empty() || slices.ContainsFunc(a.all, (*About).byNamespace)
}

func (s *Shape) terms(pod *corev1.Pod) {
	read := func(list []corev1.PodAffinityTerm) (out []Term) {
		for i := range list {
			out = append(out, Term{about(pod, &list[i]), list[i].TopologyKey, 1})
		}
		return out
	}
	weighted := func(list []corev1.WeightedPodAffinityTerm) (out []Term) {
		for i := range list {
			out = append(
				out,
				Term{about(pod, &list[i].PodAffinityTerm), list[i].PodAffinityTerm.TopologyKey, int64(list[i].Weight)},
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
		var all []*About
		for _, t := range s.Affinity {
			all = append(all, t.About)
		}
		s.Together = together(all)
	}
	for _, t := range s.AntiAffinity {
		s.carries = append(s.carries, carry{t, weights{anti: 1}})
	}
	for _, t := range s.Affinity {
		s.carries = append(s.carries, carry{t, weights{affinity: 1}})
	}
	for _, t := range s.PreferredAffinity {
		s.carries = append(s.carries, carry{t, weights{preferred: t.Weight}})
	}
	for _, t := range s.PreferredAntiAffinity {
		s.carries = append(s.carries, carry{t, weights{preferred: -t.Weight}})
	}
}

func (s *Shape) constraints(pod *corev1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		selector := selectorOf(c.LabelSelector)
		for _, key := range c.MatchLabelKeys {
			selector = also(selector, pod, key, selection.In)
		}
		one := Constraint{
			About: newAbout(
				[]string{pod.Namespace},
				nil,
				selector,
			), Key: c.TopologyKey, MaxSkew: int(c.MaxSkew), MinDomains: 1,
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
