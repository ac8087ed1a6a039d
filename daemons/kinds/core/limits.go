package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func LimitRanges() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("LimitRange"),
		Resource: "limitranges", Singular: "limitrange", ShortNames: []string{"limits"}, Namespaced: true,
		CreateOnUpdate: true,
		New:            kind.New[corev1.LimitRange](), NewList: kind.New[corev1.LimitRangeList](),
		Default: kind.Adapt(func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				defaultLimit(&l.Spec.Limits[i])
			}
		}),
		Validate: kind.AdaptValidate(validateLimitRange),
		Columns:  kind.NewColumns("Created At"),
		Row: kind.AdaptRow(func(l *corev1.LimitRange) []any {
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

func ResourceQuotas() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
		Resource: "resourcequotas", Singular: "resourcequota", ShortNames: []string{"quota"}, Namespaced: true,
		New: kind.New[corev1.ResourceQuota](), NewList: kind.New[corev1.ResourceQuotaList](),
		PrepareCreate: kind.Adapt(func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(q, old *corev1.ResourceQuota) { q.Status = old.Status }),
		Validate:      kind.AdaptValidate(validateQuota),
		ValidateUpdate: kind.AdaptValidateUpdate(func(q, old *corev1.ResourceQuota) field.ErrorList {
			errs := append(validateQuota(q), validate.Immutable(q.Spec.Scopes, old.Spec.Scopes,
				field.NewPath("spec", "scopes"))...)
			return append(errs, validate.Immutable(q.Spec.ScopeSelector, old.Spec.ScopeSelector,
				field.NewPath("spec", "scopeSelector"))...)
		}),
		Columns: kind.NewColumns("Request", "Limit", "Age"),
		Row:     kind.AdaptRow(quotaRow),
		Status: kind.NewStatus(func(to, from *corev1.ResourceQuota) { to.Status = *from.Status.DeepCopy() },
			validateQuotaStatus),
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
	return []any{strings.Join(requests, ", "), strings.Join(limits, ", "), cell.Age(q.CreationTimestamp)}
}
