package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/core"
)

// Covers reports whether a quota's scopes include an object. A scope selects pods, or claims by their
// VolumeAttributesClass. It includes no objects of other kinds.
func Covers(q *corev1.ResourceQuota, obj any) bool {
	for _, s := range q.Spec.Scopes {
		if !satisfiesScope(
			corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists},
			obj,
		) {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, r := range q.Spec.ScopeSelector.MatchExpressions {
		if !satisfiesScope(r, obj) {
			return false
		}
	}
	return true
}

func satisfiesScope(r corev1.ScopedResourceSelectorRequirement, obj any) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		switch r.ScopeName {
		case corev1.ResourceQuotaScopeTerminating:
			return o.Spec.ActiveDeadlineSeconds != nil
		case corev1.ResourceQuotaScopeNotTerminating:
			return o.Spec.ActiveDeadlineSeconds == nil
		case corev1.ResourceQuotaScopeBestEffort:
			return core.QOSClass(o) == corev1.PodQOSBestEffort
		case corev1.ResourceQuotaScopeNotBestEffort:
			return core.QOSClass(o) != corev1.PodQOSBestEffort
		case corev1.ResourceQuotaScopePriorityClass:
			return satisfiesName(r, o.Spec.PriorityClassName)
		case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
			return hasCrossNamespaceTerms(o.Spec.Affinity)
		}
	case *corev1.PersistentVolumeClaim:
		if r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass {
			return satisfiesClass(r, o)
		}
	}
	return false
}

// satisfiesName reports whether a name, which may be empty, satisfies a requirement.
func satisfiesName(r corev1.ScopedResourceSelectorRequirement, name string) bool {
	switch r.Operator {
	case corev1.ScopeSelectorOpIn:
		return name != "" && slices.Contains(r.Values, name)
	case corev1.ScopeSelectorOpNotIn:
		return name == "" || !slices.Contains(r.Values, name)
	case corev1.ScopeSelectorOpExists:
		return name != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return name == ""
	}
	return false
}

// satisfiesClass reports whether one of the VolumeAttributesClasses of a claim satisfies a requirement. During a
// change, both the old and the new class count.
func satisfiesClass(r corev1.ScopedResourceSelectorRequirement, c *corev1.PersistentVolumeClaim) bool {
	classes := map[string]bool{}
	add := func(name *string) {
		if name != nil && *name != "" {
			classes[*name] = true
		}
	}
	add(c.Spec.VolumeAttributesClassName)
	add(c.Status.CurrentVolumeAttributesClassName)
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(&m.TargetVolumeAttributesClassName)
	}
	if len(classes) == 0 {
		return satisfiesName(r, "")
	}
	for name := range classes {
		if satisfiesName(r, name) {
			return true
		}
	}
	return false
}

// hasCrossNamespaceTerms reports whether a pod has affinity or anti-affinity terms for other namespaces.
func hasCrossNamespaceTerms(a *corev1.Affinity) bool {
	across := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
		term := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
		return slices.ContainsFunc(required, term) ||
			slices.ContainsFunc(preferred,
				func(w corev1.WeightedPodAffinityTerm) bool { return term(w.PodAffinityTerm) })
	}
	if a == nil {
		return false
	}
	return a.PodAffinity != nil &&
		across(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) ||
		a.PodAntiAffinity != nil &&
			across(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
}

// MissingResources returns the requests and limits that a pod must set because the quota limits them: those of cpu and
// memory that neither the container nor the pod sets.
func MissingResources(q *corev1.ResourceQuota, pod *corev1.Pod) []string {
	without := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for name := range q.Spec.Hard {
			kind, r, dotted := strings.Cut(string(name), ".")
			if !dotted {
				kind, r = "requests", string(name)
			}
			if r != "cpu" && r != "memory" || kind != "requests" && kind != "limits" {
				continue
			}
			if !isSpecified(c.Resources, kind, r) &&
				(pod.Spec.Resources == nil || !isSpecified(*pod.Spec.Resources, kind, r)) {
				without[name] = append(without[name], c.Name)
			}
		}
	}
	var out []string
	for name, containers := range without {
		slices.Sort(containers)
		out = append(out, fmt.Sprintf("%s for: %s", name, strings.Join(containers, ",")))
	}
	slices.Sort(out)
	return out
}

func isSpecified(r corev1.ResourceRequirements, kind, name string) bool {
	list := r.Requests
	if kind == "limits" {
		list = r.Limits
	}
	_, ok := list[corev1.ResourceName(name)]
	return ok
}
