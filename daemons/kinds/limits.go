package kinds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func limitRanges() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("LimitRange"),
		Resource: "limitranges", Singular: "limitrange", ShortNames: []string{"limits"}, Namespaced: true,
		CreateOnUpdate: true,
		New:            newOf[corev1.LimitRange](), NewList: newOf[corev1.LimitRangeList](),
		Default: adapt(func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				defaultLimit(&l.Spec.Limits[i])
			}
		}),
		Validate: adaptValidate(validateLimitRange),
		Columns:  newColumns("Created At"),
		Row: adaptRow(func(l *corev1.LimitRange) []any {
			return []any{l.CreationTimestamp.UTC().Format(time.RFC3339)}
		}),
	}
}

// defaultLimit fills in missing defaults of an item: a default from the maximum, a default request from the default, or
// else from the minimum.
func defaultLimit(l *corev1.LimitRangeItem) {
	if l.Type != corev1.LimitTypeContainer {
		return
	}
	fill := func(to *corev1.ResourceList, from corev1.ResourceList) {
		for name, q := range from {
			if _, ok := (*to)[name]; !ok {
				if *to == nil {
					*to = corev1.ResourceList{}
				}
				(*to)[name] = q.DeepCopy()
			}
		}
	}
	fill(&l.Default, l.Max)
	fill(&l.DefaultRequest, l.Default)
	fill(&l.DefaultRequest, l.Min)
}

func resourceQuotas() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
		Resource: "resourcequotas", Singular: "resourcequota", ShortNames: []string{"quota"}, Namespaced: true,
		New: newOf[corev1.ResourceQuota](), NewList: newOf[corev1.ResourceQuotaList](),
		PrepareCreate: adapt(func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} }),
		PrepareUpdate: adaptUpdate(func(q, old *corev1.ResourceQuota) { q.Status = old.Status }),
		Validate:      adaptValidate(validateQuota),
		ValidateUpdate: adaptValidateUpdate(func(q, old *corev1.ResourceQuota) field.ErrorList {
			errs := append(
				validateQuota(q),
				requireImmutable(q.Spec.Scopes, old.Spec.Scopes, field.NewPath("spec", "scopes"))...)
			return append(
				errs,
				requireImmutable(q.Spec.ScopeSelector, old.Spec.ScopeSelector,
					field.NewPath("spec", "scopeSelector"))...)
		}),
		Columns: newColumns("Request", "Limit", "Age"),
		Row:     adaptRow(quotaRow),
		Status: newStatus(
			func(to, from *corev1.ResourceQuota) { to.Status = *from.Status.DeepCopy() },
			validateQuotaStatus,
		),
	}
}

func quotaRow(q *corev1.ResourceQuota) []any {
	names := []string{}
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{strings.Join(requests, ", "), strings.Join(limits, ", "), age(q.CreationTimestamp)}
}
