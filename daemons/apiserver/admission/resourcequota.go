package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/quota"
)

// Quota refuses what would take a namespace beyond its quotas. What is used is counted from
// the objects themselves, so that a controller that lags does not matter. That no two writes
// at the same instant go beyond together is the API server's business: it asks again, one
// write of a namespace at a time, about those that Bounds names.
type Quota struct{ objects api.Objects }

// NewQuota returns the plugin.
func NewQuota(objects api.Objects) *Quota { return &Quota{objects} }

// asked is what a write takes of one quota.
type asked struct {
	quota *corev1.ResourceQuota
	more  corev1.ResourceList // above zero
}

// Bounds says whether a quota bounds what a write brings.
func (p *Quota) Bounds(a *api.Admission) bool {
	return slices.ContainsFunc(p.about(a, time.Now()), func(x asked) bool { return len(x.more) > 0 })
}

// Validate compares what is there and what comes with what is allowed.
func (p *Quota) Validate(_ context.Context, a *api.Admission) error {
	now := time.Now()
	for _, x := range p.about(a, now) {
		if pod, ok := a.Object.(*corev1.Pod); ok && a.Operation == "CREATE" {
			if missing := quota.Missing(x.quota, pod); len(missing) > 0 {
				return forbidden(a, fmt.Errorf("failed quota: %s: must specify %s", x.quota.Name, strings.Join(missing, "; ")))
			}
		}
		if len(x.more) == 0 {
			continue
		}
		if err := x.fits(p.used(a, x.quota, now)); err != nil {
			return forbidden(a, err)
		}
	}
	return nil
}

// about finds the quotas that a write concerns, and what it takes of each: of a change,
// what the object takes more than before. A change of a pod takes more only by a resize.
func (p *Quota) about(a *api.Admission, now time.Time) []asked {
	changed := a.Operation == "UPDATE" && (a.Subresource == "" || a.Subresource == "resize") && a.Old != nil
	if a.Namespace == "" || a.Object == nil || !changed && (a.Operation != "CREATE" || a.Subresource != "") {
		return nil
	}
	gr := a.Resource.GroupResource()
	if changed && gr == podsGR && a.Subresource != "resize" {
		return nil
	}
	var out []asked
	for _, obj := range p.objects.List(resourceQuotasGR, a.Namespace) {
		q, ok := obj.(*corev1.ResourceQuota)
		if !ok || !quota.Covers(q, a.Object) {
			continue
		}
		more := quota.Charge(q, gr, a.Object, now)
		if changed {
			for name, before := range quota.Charge(q, gr, a.Old, now) {
				if now, ok := more[name]; ok {
					after := now.DeepCopy() // it may be the object's own
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
		out = append(out, asked{q, more})
	}
	slices.SortFunc(out, func(x, y asked) int { return strings.Compare(x.quota.Name, y.quota.Name) })
	return out
}

// fits says which of a quota's bounds would be passed, when so much is used.
func (x asked) fits(used corev1.ResourceList) error {
	var requested, have, limited []string
	for _, name := range sorted(x.more) {
		more, now, hard := x.more[name], used[name], x.quota.Spec.Hard[name]
		total := now.DeepCopy()
		total.Add(more)
		if total.Cmp(hard) > 0 {
			requested = append(requested, fmt.Sprintf("%s=%s", name, more.String()))
			have = append(have, fmt.Sprintf("%s=%s", name, now.String()))
			limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		x.quota.Name, strings.Join(requested, ","), strings.Join(have, ","), strings.Join(limited, ","))
}

// used is what the objects of the written resource take of a quota.
func (p *Quota) used(a *api.Admission, q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	total, gr := corev1.ResourceList{}, a.Resource.GroupResource()
	for _, obj := range p.objects.List(gr, a.Namespace) {
		quota.Add(total, quota.Charge(q, gr, obj, now))
	}
	return total
}
