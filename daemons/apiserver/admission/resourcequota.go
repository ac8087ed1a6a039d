package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/quota"
)

// Quota refuses writes that would exceed a namespace's quotas. It counts usage from the objects themselves, so a
// controller that lags does not matter. Concurrent writes could exceed a quota together. So the API server validates a
// second time the writes for which AffectsQuota returns true, one per namespace at a time.
type Quota struct{ objects api.Objects }

// NewQuota returns the plugin.
func NewQuota(objects api.Objects) *Quota { return &Quota{objects} }

// quotaUsage is the usage that a write adds to one quota.
type quotaUsage struct {
	quota       *corev1.ResourceQuota
	added       corev1.ResourceList // the additional usage; only amounts above zero
	entersScope bool                // the object was created, or the change moved it into the quota's scope
}

// AffectsQuota reports whether a write adds usage to a quota.
func (p *Quota) AffectsQuota(a *api.Admission) bool {
	return slices.ContainsFunc(p.affectedQuotas(a, time.Now()), func(x quotaUsage) bool { return len(x.added) > 0 })
}

// Validate checks that current usage and the write's usage together fit into each quota.
func (p *Quota) Validate(_ context.Context, a *api.Admission) error {
	now := time.Now()
	for _, x := range p.affectedQuotas(a, now) {
		if pod, ok := a.Object.(*corev1.Pod); ok && x.entersScope {
			if missing := quota.MissingResources(x.quota, pod); len(missing) > 0 {
				return forbidden(a, fmt.Errorf("failed quota: %s: must specify %s", x.quota.Name,
					strings.Join(missing, "; ")))
			}
		}
		if len(x.added) == 0 {
			continue
		}
		if err := x.checkFit(p.currentUsage(a, x.quota, now)); err != nil {
			return forbidden(a, err)
		}
	}
	return nil
}

// affectedQuotas returns the quotas that a write affects, with the additional usage of each. A change usually adds the
// difference between the new and the old object. A change that moves the object into a quota's scope adds the whole
// object: a pod by its deadline, a claim by its volume attributes class. Within a scope, only a resize changes the
// usage of a pod. A claim's status can also change its usage.
func (p *Quota) affectedQuotas(a *api.Admission, now time.Time) []quotaUsage {
	_, volume := a.Object.(*corev1.PersistentVolumeClaim)
	changed := a.Operation == "UPDATE" &&
		(a.Subresource == "" || a.Subresource == "resize" || volume && a.Subresource == "status") &&
		a.Old != nil
	if a.Namespace == "" || a.Object == nil || !changed && (a.Operation != "CREATE" || a.Subresource != "") {
		return nil
	}
	gr := a.Resource.GroupResource()
	var out []quotaUsage
	with := p.lookups()
	for _, obj := range p.objects.List(resourceQuotasGR, a.Namespace) {
		q, ok := obj.(*corev1.ResourceQuota)
		if !ok || !quota.Covers(q, a.Object) {
			continue
		}
		old := changed && quota.Covers(q, a.Old)
		if old && gr == podsGR && a.Subresource != "resize" {
			continue
		}
		more := quota.Charge(q, gr, a.Object, now, with)
		if old {
			for name, before := range quota.Charge(q, gr, a.Old, now, with) {
				if now, ok := more[name]; ok {
					after := now.DeepCopy() // now may share memory with the object
					after.Sub(before)
					more[name] = after
				}
			}
		}
		for name, amount := range more {
			if amount.Sign() <= 0 {
				delete(more, name)
			}
		}
		out = append(out, quotaUsage{q, more, !old})
	}
	slices.SortFunc(out, func(x, y quotaUsage) int { return strings.Compare(x.quota.Name, y.quota.Name) })
	return out
}

// checkFit returns an error if the write exceeds the quota, given its current usage.
func (x quotaUsage) checkFit(used corev1.ResourceList) error {
	var requested, existing, limited []string
	for _, name := range sortedNames(x.added) {
		more, now, hard := x.added[name], used[name], x.quota.Spec.Hard[name]
		total := now.DeepCopy()
		total.Add(more)
		if total.Cmp(hard) > 0 {
			requested = append(requested, fmt.Sprintf("%s=%s", name, more.String()))
			existing = append(existing, fmt.Sprintf("%s=%s", name, now.String()))
			limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		x.quota.Name, strings.Join(requested, ","), strings.Join(existing, ","), strings.Join(limited, ","))
}

// lookups returns the lookups that counting a device claim needs.
func (p *Quota) lookups() quota.Lookups {
	return quota.Lookups{
		Class: func(name string) *resourcev1.DeviceClass {
			obj, _ := p.objects.Get(resourcev1.Resource("deviceclasses"), "", name)
			class, _ := obj.(*resourcev1.DeviceClass)
			return class
		},
		Pod: func(namespace, name string) *corev1.Pod {
			obj, _ := p.objects.Get(podsGR, namespace, name)
			pod, _ := obj.(*corev1.Pod)
			return pod
		},
		Claims: func(namespace string) (list []*resourcev1.ResourceClaim) {
			for _, obj := range p.objects.List(resourcev1.Resource("resourceclaims"), namespace) {
				if c, ok := obj.(*resourcev1.ResourceClaim); ok {
					list = append(list, c)
				}
			}
			return list
		},
	}
}

// currentUsage returns the current usage of a quota, for the amounts that the written resource counts against.
func (p *Quota) currentUsage(a *api.Admission, q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	total, with := corev1.ResourceList{}, p.lookups()
	for _, gr := range sharedResources(a.Resource.GroupResource(), q) {
		for _, obj := range p.objects.List(gr, a.Namespace) {
			quota.Add(total, quota.Charge(q, gr, obj, now, with))
		}
	}
	return total
}

// sharedResources returns the resources that count against the same amounts of a quota as the given one.
func sharedResources(of schema.GroupResource, q *corev1.ResourceQuota) []schema.GroupResource {
	list := []schema.GroupResource{of}
	for name := range q.Spec.Hard {
		if all := quota.CountedResources(name); slices.Contains(all, of) {
			for _, gr := range all {
				if !slices.Contains(list, gr) {
					list = append(list, gr)
				}
			}
		}
	}
	return list
}
