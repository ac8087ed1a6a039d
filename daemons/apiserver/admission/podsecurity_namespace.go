package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	securityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"clusterctl/daemons/api"
)

// Limits on checking the existing pods of a namespace against a new level.
const (
	maxPods       = 3000
	maxEvaluation = time.Second
)

// checkNamespace rejects invalid labels, and warns about existing pods that violate a new level.
func (p *podSecurity) checkNamespace(ctx context.Context, a *api.Admission) error {
	if a.Subresource != "" {
		return nil
	}
	namespace, ok := a.Object.(*corev1.Namespace)
	if !ok {
		return apierrors.NewBadRequest("failed to decode namespace")
	}
	demanded, mistakes := securityapi.PolicyToEvaluate(namespace.Labels, p.defaultPolicy)
	invalid := apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, mistakes)
	exempt := slices.Contains(p.exemptions.Namespaces, a.Name)
	if a.Operation == "CREATE" {
		if len(mistakes) > 0 {
			return invalid
		}
		if exempt {
			p.warnIgnored(a, demanded, namespace.Labels)
		}
		return nil
	}
	old, ok := a.Old.(*corev1.Namespace)
	if !ok {
		return apierrors.NewBadRequest("failed to decode old namespace")
	}
	before, wrong := securityapi.PolicyToEvaluate(old.Labels, p.defaultPolicy)
	if len(mistakes) > 0 && (len(wrong) == 0 || !reflect.DeepEqual(mistakes, wrong)) {
		return invalid
	}
	stricter := securityapi.CompareLevels(demanded.Enforce.Level, before.Enforce.Level) > 0
	if demanded.Enforce == before.Enforce || demanded.Enforce.Level == securityapi.LevelPrivileged ||
		demanded.Enforce.Version == before.Enforce.Version && !stricter {
		return nil // the level is not stricter than before
	}
	if exempt {
		p.warnIgnored(a, demanded, namespace.Labels)
		return nil
	}
	for _, text := range p.violationsOf(ctx, namespace.Name, demanded.Enforce) {
		addWarning(a, text)
	}
	return nil
}

// warnIgnored warns that the labels of an exempt namespace have no effect.
func (p *podSecurity) warnIgnored(a *api.Admission, demanded securityapi.Policy, labels map[string]string) {
	if demanded.FullyPrivileged() || demanded.Equivalent(&p.defaultPolicy) {
		return
	}
	var parts []string
	for _, of := range []struct {
		name                string
		level, levelVersion string
		demanded            securityapi.LevelVersion
	}{
		{"enforce", securityapi.EnforceLevelLabel, securityapi.EnforceVersionLabel, demanded.Enforce},
		{"audit", securityapi.AuditLevelLabel, securityapi.AuditVersionLabel, demanded.Audit},
		{"warn", securityapi.WarnLevelLabel, securityapi.WarnVersionLabel, demanded.Warn},
	} {
		_, level := labels[of.level]
		_, levelVersion := labels[of.levelVersion]
		if of.demanded.Level != securityapi.LevelPrivileged && (level || levelVersion) {
			parts = append(parts, of.name+"="+of.demanded.String())
		}
	}
	addWarning(a, fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored",
		a.Name, strings.Join(parts, ", ")))
}

// violationsOf returns warnings about the pods of a namespace that violate a level.
func (p *podSecurity) violationsOf(ctx context.Context, namespace string, level securityapi.LevelVersion) []string {
	within := maxEvaluation
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pods := p.podsToCheck(namespace)
	total := len(pods)
	pods = pods[:min(total, maxPods)]
	names := map[string][]string{} // names of pods, by their violation
	checked := len(pods)
	for i, pod := range pods {
		if r := policy.AggregateCheckResults(p.checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
			names[r.ForbiddenReason()] = append(names[r.ForbiddenReason()], pod.Name)
		}
		if ctx.Err() != nil {
			checked = i + 1
			break
		}
	}
	var texts []string
	if checked < total {
		texts = append(texts, fmt.Sprintf(
			"new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, total))
	}
	if len(names) > 0 {
		texts = append(texts, fmt.Sprintf(
			"existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	var each []string
	for reason, of := range names {
		others := ""
		switch n := len(of) - 1; {
		case n == 1:
			others = " (and 1 other pod)"
		case n > 1:
			others = fmt.Sprintf(" (and %d other pods)", n)
		}
		each = append(each, slices.Min(of)+others+": "+reason)
	}
	slices.Sort(each)
	return append(texts, each...)
}

// podsToCheck returns the pods of a namespace that are not exempt. One pod of each controller comes first, because the
// other pods of a controller most likely have the same violations.
func (p *podSecurity) podsToCheck(namespace string) []*corev1.Pod {
	var first, alike []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, obj := range p.objects.List(podsGR, namespace) {
		pod, ok := obj.(*corev1.Pod)
		if !ok ||
			pod.Spec.RuntimeClassName != nil &&
				slices.Contains(p.exemptions.RuntimeClasses, *pod.Spec.RuntimeClassName) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			alike = append(alike, pod)
			continue
		}
		if first = append(first, pod); owner != nil {
			seen[owner.UID] = true
		}
	}
	return append(first, alike...)
}
