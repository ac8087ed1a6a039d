package oracle

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// requiredTerms returns the terms of a pod's required affinity or anti-affinity to other pods.
func requiredTerms(pod *corev1.Pod, anti bool) []corev1.PodAffinityTerm {
	a := pod.Spec.Affinity
	switch {
	case a != nil && !anti && a.PodAffinity != nil:
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	case a != nil && anti && a.PodAntiAffinity != nil:
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func preferredTerms(pod *corev1.Pod, anti bool) []corev1.WeightedPodAffinityTerm {
	a := pod.Spec.Affinity
	switch {
	case a != nil && !anti && a.PodAffinity != nil:
		return a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	case a != nil && anti && a.PodAntiAffinity != nil:
		return a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// termApplies reports whether a term of a pod applies to another pod. The other pod is in one of the term's namespaces,
// and its selector selects it. The other pod has the pod's own values of matchLabelKeys, and not those of
// mismatchLabelKeys. Keys that the pod lacks are ignored.
func (w *World) termApplies(t corev1.PodAffinityTerm, pod, other *corev1.Pod) bool {
	if !w.inNamespaces(t, pod, other.Namespace) || !selects(t.LabelSelector, other.Labels) {
		return false
	}
	for _, key := range t.MatchLabelKeys {
		if value, has := pod.Labels[key]; has && !hasAll(other.Labels, map[string]string{key: value}) {
			return false
		}
	}
	for _, key := range t.MismatchLabelKeys {
		if value, has := pod.Labels[key]; has && hasAll(other.Labels, map[string]string{key: value}) {
			return false
		}
	}
	return true
}

// inNamespaces reports whether a term applies to a namespace. It applies to the namespaces that it names and those that
// its selector selects, or to the pod's own namespace if it has neither. An empty selector selects all.
func (w *World) inNamespaces(t corev1.PodAffinityTerm, pod *corev1.Pod, namespace string) bool {
	if t.NamespaceSelector == nil && len(t.Namespaces) == 0 {
		return namespace == pod.Namespace
	}
	if slices.Contains(t.Namespaces, namespace) || isEmptySelector(t.NamespaceSelector) {
		return true
	}
	return slices.ContainsFunc(w.Namespaces, func(ns *corev1.Namespace) bool {
		return ns.Name == namespace && selects(t.NamespaceSelector, ns.Labels)
	})
}

// sameDomain reports whether both nodes have the topology key with the same value.
func sameDomain(key string, a, b *corev1.Node) bool {
	mine, has := a.Labels[key]
	theirs, has2 := b.Labels[key]
	return has && has2 && mine == theirs
}

// interPodAffinity refuses nodes by the required affinity and anti-affinity of the pod, and by the anti-affinity of
// running pods, in this order.
func interPodAffinity(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if !c.nearRequired(pod, node) {
		return newUnresolvable("node(s) didn't match pod affinity rules")
	}
	for _, t := range requiredTerms(pod, true) {
		for _, p := range c.pods {
			if c.termApplies(t, pod, p.pod) && sameDomain(t.TopologyKey, p.node, node) {
				return newResolvable("node(s) didn't match pod anti-affinity rules")
			}
		}
	}
	for _, p := range c.pods {
		for _, t := range requiredTerms(p.pod, true) {
			if c.termApplies(t, p.pod, pod) && sameDomain(t.TopologyKey, p.node, node) {
				return newResolvable("node(s) didn't satisfy existing pods anti-affinity rules")
			}
		}
	}
	return nil
}

// nearRequired reports whether, for each required term, a pod to which all terms apply is in the node's domain. The
// first pod of a group with affinity to itself may run on any node that has the keys.
func (c *simulation) nearRequired(pod *corev1.Pod, node *corev1.Node) bool {
	terms := requiredTerms(pod, false)
	allAbout := func(other *corev1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !c.termApplies(t, pod, other) })
	}
	near, anywhere := true, false
	for _, t := range terms {
		if _, has := node.Labels[t.TopologyKey]; !has {
			return false
		}
		found := false
		for _, p := range c.pods {
			if _, has := p.node.Labels[t.TopologyKey]; has && allAbout(p.pod) {
				anywhere = true
				found = found || sameDomain(t.TopologyKey, p.node, node)
			}
		}
		near = near && found
	}
	return near || !anywhere && allAbout(pod)
}

// interPodAffinityScore scores nodes by the weights of the pod's preferred terms that apply to running pods, and of
// their terms that apply to the pod. A required affinity of a running pod counts as a preferred one, of weight 1 unless
// the configuration sets another. The configuration may also ignore the preferred terms of running pods for pods
// without such terms.
func interPodAffinityScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	hard := int64(1)
	if a := c.Arguments.Pods; a != nil {
		if a.HardPodAffinityWeight != nil {
			hard = int64(*a.HardPodAffinityWeight)
		}
		if a.IgnorePreferredTermsOfExistingPods && len(preferredTerms(pod, false))+len(preferredTerms(pod, true)) == 0 {
			return nil
		}
	}
	scores := make([]int64, len(nodes))
	any := false
	weigh := func(t corev1.PodAffinityTerm, of, other *corev1.Pod, at *corev1.Node, weight int64) {
		if _, has := at.Labels[t.TopologyKey]; !has || !c.termApplies(t, of, other) {
			return
		}
		any = true
		for i, node := range nodes {
			if sameDomain(t.TopologyKey, at, node) {
				scores[i] += weight
			}
		}
	}
	for _, p := range c.pods {
		for _, t := range preferredTerms(pod, false) {
			weigh(t.PodAffinityTerm, pod, p.pod, p.node, int64(t.Weight))
		}
		for _, t := range preferredTerms(pod, true) {
			weigh(t.PodAffinityTerm, pod, p.pod, p.node, -int64(t.Weight))
		}
		for _, t := range requiredTerms(p.pod, false) {
			weigh(t, p.pod, pod, p.node, hard)
		}
		for _, t := range preferredTerms(p.pod, false) {
			weigh(t.PodAffinityTerm, p.pod, pod, p.node, int64(t.Weight))
		}
		for _, t := range preferredTerms(p.pod, true) {
			weigh(t.PodAffinityTerm, p.pod, pod, p.node, -int64(t.Weight))
		}
	}
	if !any {
		return nil
	}
	var least, most int64 = math.MaxInt64, math.MinInt64
	for _, s := range scores {
		least, most = min(least, s), max(most, s)
	}
	for i, s := range scores {
		scores[i] = 0
		if most > least {
			scores[i] = int64(maxScore * (float64(s-least) / float64(most-least)))
		}
	}
	return scores
}
