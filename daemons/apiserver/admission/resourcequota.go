package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"clusterctl/daemons/api"
)

// Quota refuses what would take a namespace beyond its quotas. What is used is counted from
// the objects themselves, so that a controller that lags does not matter. That no two writes
// at the same instant go beyond together is the API server's business: it asks again, one
// write of a namespace at a time, about those that Bounds names.
type Quota struct{ objects api.Objects }

// NewQuota returns the plugin.
func NewQuota(objects api.Objects) *Quota { return &Quota{objects} }

// Bounds says whether a quota bounds what a write brings.
func (p *Quota) Bounds(a *api.Admission) bool {
	quotas, asked := p.about(a)
	for _, q := range quotas {
		for name := range q.Spec.Hard {
			if more, ok := asked[name]; ok && more.Sign() > 0 {
				return true
			}
		}
	}
	return false
}

// Validate compares what is there and what comes with what is allowed.
func (p *Quota) Validate(_ context.Context, a *api.Admission) error {
	quotas, asked := p.about(a)
	for _, q := range quotas {
		if pod, ok := a.Object.(*corev1.Pod); ok && a.Operation == "CREATE" {
			if missing := missing(q, pod); len(missing) > 0 {
				return forbidden(a, fmt.Errorf("failed quota: %s: must specify %s", q.Name, strings.Join(missing, "; ")))
			}
		}
		if err := p.fits(a, q, asked); err != nil {
			return forbidden(a, err)
		}
	}
	return nil
}

// about finds the quotas whose scopes a write is in, and what it brings: of a change, what
// the object takes more than before.
func (p *Quota) about(a *api.Admission) (quotas []*corev1.ResourceQuota, asked corev1.ResourceList) {
	changed := a.Operation == "UPDATE" && (a.Subresource == "" || a.Subresource == "resize") && a.Old != nil
	if a.Namespace == "" || a.Object == nil || !changed && (a.Operation != "CREATE" || a.Subresource != "") {
		return nil, nil
	}
	list := p.objects.List(resourceQuotasGR, a.Namespace)
	if len(list) == 0 {
		return nil, nil
	}
	name := a.Resource.GroupResource().String()
	if asked = usage(name, a.Object); changed {
		for r, before := range usage(name, a.Old) {
			if now, ok := asked[r]; ok {
				now.Sub(before)
				asked[r] = now
			}
		}
	}
	for _, obj := range list {
		q := obj.(*corev1.ResourceQuota)
		if pod, ok := a.Object.(*corev1.Pod); ok && !scoped(q, pod) || !ok && (len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil) {
			continue // scopes are about pods
		}
		quotas = append(quotas, q)
	}
	slices.SortFunc(quotas, func(x, y *corev1.ResourceQuota) int { return strings.Compare(x.Name, y.Name) })
	return quotas, asked
}

// fits says which of a quota's bounds would be passed.
func (p *Quota) fits(a *api.Admission, q *corev1.ResourceQuota, asked corev1.ResourceList) error {
	var used corev1.ResourceList
	var requested, have, limited []string
	for _, name := range sorted(q.Spec.Hard) {
		more, ok := asked[name]
		if !ok || more.Sign() <= 0 {
			continue
		}
		if used == nil {
			used = p.used(a, q)
		}
		hard, total := q.Spec.Hard[name], used[name]
		total.Add(more)
		if total.Cmp(hard) > 0 {
			now := used[name]
			requested = append(requested, fmt.Sprintf("%s=%s", name, more.String()))
			have = append(have, fmt.Sprintf("%s=%s", name, now.String()))
			limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		q.Name, strings.Join(requested, ","), strings.Join(have, ","), strings.Join(limited, ","))
}

func (p *Quota) used(a *api.Admission, q *corev1.ResourceQuota) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, obj := range p.objects.List(a.Resource.GroupResource(), a.Namespace) {
		if pod, ok := obj.(*corev1.Pod); ok && (!scoped(q, pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			continue
		}
		add(total, usage(a.Resource.GroupResource().String(), obj))
	}
	return total
}

func add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name]
		sum.Add(q)
		to[name] = sum
	}
}

// usage is what one object takes of each thing that quotas can bound.
func usage(name string, obj any) corev1.ResourceList {
	one := *quantity.NewQuantity(1, quantity.DecimalSI)
	out := corev1.ResourceList{corev1.ResourceName("count/" + name): one}
	switch o := obj.(type) {
	case *corev1.Pod:
		out[corev1.ResourcePods] = one
		for r, q := range resourcehelper.PodRequests(o, resourcehelper.PodResourcesOptions{}) {
			out["requests."+r] = q
			if r == corev1.ResourceCPU || r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage {
				out[r] = q
			}
		}
		for r, q := range resourcehelper.PodLimits(o, resourcehelper.PodResourcesOptions{}) {
			out["limits."+r] = q
		}
	case *corev1.Service:
		out[corev1.ResourceServices] = one
		ports := *quantity.NewQuantity(int64(len(o.Spec.Ports)), quantity.DecimalSI)
		switch o.Spec.Type {
		case corev1.ServiceTypeNodePort:
			out[corev1.ResourceServicesNodePorts] = ports
		case corev1.ServiceTypeLoadBalancer:
			out[corev1.ResourceServicesLoadBalancers], out[corev1.ResourceServicesNodePorts] = one, ports
		}
	case *corev1.PersistentVolumeClaim:
		out[corev1.ResourcePersistentVolumeClaims], out[corev1.ResourceRequestsStorage] = one, o.Spec.Resources.Requests[corev1.ResourceStorage]
		if class := o.Spec.StorageClassName; class != nil && *class != "" {
			prefix := corev1.ResourceName(*class + ".storageclass.storage.k8s.io/")
			out[prefix+corev1.ResourcePersistentVolumeClaims], out[prefix+corev1.ResourceRequestsStorage] = one, o.Spec.Resources.Requests[corev1.ResourceStorage]
		}
	case *corev1.ConfigMap, *corev1.Secret, *corev1.ReplicationController, *corev1.ResourceQuota:
		out[corev1.ResourceName(name)] = one
	}
	return out
}

// scoped says whether a quota is about such a pod.
func scoped(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	best := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	bestEffort := len(best) == 0 && len(limits) == 0
	for _, s := range q.Spec.Scopes {
		match := true
		switch s {
		case corev1.ResourceQuotaScopeTerminating:
			match = pod.Spec.ActiveDeadlineSeconds != nil
		case corev1.ResourceQuotaScopeNotTerminating:
			match = pod.Spec.ActiveDeadlineSeconds == nil
		case corev1.ResourceQuotaScopeBestEffort:
			match = bestEffort
		case corev1.ResourceQuotaScopeNotBestEffort:
			match = !bestEffort
		}
		if !match {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		if e.ScopeName != corev1.ResourceQuotaScopePriorityClass {
			continue
		}
		in := slices.Contains(e.Values, pod.Spec.PriorityClassName)
		switch e.Operator {
		case corev1.ScopeSelectorOpIn:
			if !in {
				return false
			}
		case corev1.ScopeSelectorOpNotIn:
			if in {
				return false
			}
		case corev1.ScopeSelectorOpExists:
			if pod.Spec.PriorityClassName == "" {
				return false
			}
		case corev1.ScopeSelectorOpDoesNotExist:
			if pod.Spec.PriorityClassName != "" {
				return false
			}
		}
	}
	return true
}

// missing names the requests and limits that a quota bounds and a container leaves out.
func missing(q *corev1.ResourceQuota, pod *corev1.Pod) []string {
	without := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for name := range q.Spec.Hard {
			kind, r, dotted := strings.Cut(string(name), ".")
			if !dotted {
				kind, r = "requests", string(name)
			}
			if r != "cpu" && r != "memory" {
				continue
			}
			list := c.Resources.Requests
			if kind == "limits" {
				list = c.Resources.Limits
			}
			if _, ok := list[corev1.ResourceName(r)]; !ok {
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
