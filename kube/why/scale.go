package why

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func explainAutoscaler(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	h, err := read(ctx, ref, x.clients.Kubernetes.AutoscalingV2().HorizontalPodAutoscalers(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.scale().autoscalerFinding(ctx, h), nil
}

func autoscalerCondition(
	h *autoscalingv2.HorizontalPodAutoscaler, kind autoscalingv2.HorizontalPodAutoscalerConditionType,
) *autoscalingv2.HorizontalPodAutoscalerCondition {
	for i := range h.Status.Conditions {
		if h.Status.Conditions[i].Type == kind {
			return &h.Status.Conditions[i]
		}
	}
	return nil
}

// autoscalerFinding returns why an autoscaler does not scale.
func (x scaleExplainer) autoscalerFinding(ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler) *finding {
	const state = "does not scale"
	ref := refTo("HorizontalPodAutoscaler", h)
	target := kindRef(h.Spec.ScaleTargetRef.Kind, h.Namespace, h.Spec.ScaleTargetRef.Name)
	if c := autoscalerCondition(h, autoscalingv2.AbleToScale); c != nil && c.Status == corev1.ConditionFalse {
		reason := clause(c.Message)
		if c.Reason == "FailedGetScale" {
			reason = fmt.Sprintf("its target %s cannot be read: %s", target, reason)
		}
		return broken(ref, state, reason, "status.conditions[AbleToScale]: "+c.Reason, Remedy{
			Text: "Create the target, or correct its name.", Field: "spec.scaleTargetRef of " + ref.String(),
			Command: "kubectl edit " + kubectlName(ref)})
	}
	if c := autoscalerCondition(h, autoscalingv2.ScalingActive); c != nil && c.Status == corev1.ConditionFalse {
		return x.inactiveAutoscaler(ctx, h, target, c)
	}
	if len(h.Status.Conditions) == 0 {
		if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
			return f.below(ref, state, "no controller has considered it", "status.conditions")
		}
		return broken(ref, state, "no controller has considered it yet", "status.conditions", describeRemedy(ref))
	}
	if c := autoscalerCondition(h, autoscalingv2.ScalingLimited); c != nil && c.Status == corev1.ConditionTrue {
		switch c.Reason {
		case "TooManyReplicas":
			return broken(ref, "does not scale up further", fmt.Sprintf("it wants more than its maxReplicas of %d",
				h.Spec.MaxReplicas), "status.conditions[ScalingLimited]", Remedy{Text: "Raise the maximum.",
				Field:   "spec.maxReplicas of " + ref.String(),
				Command: "kubectl patch " + kubectlName(ref) + ` -p '{"spec":{"maxReplicas":NUMBER}}'`})
		case "TooFewReplicas":
			return healthy("has the fewest replicas it may have, %d", replicasOf(h.Spec.MinReplicas))
		}
	}
	return healthy("scales %s to %d replicas", target, h.Status.DesiredReplicas)
}

// inactiveAutoscaler explains an autoscaler that has no metrics.
func (x scaleExplainer) inactiveAutoscaler(
	ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler, target Ref,
	c *autoscalingv2.HorizontalPodAutoscalerCondition,
) *finding {
	const state = "does not scale"
	ref, evidence := refTo("HorizontalPodAutoscaler", h), "status.conditions[ScalingActive]: "+c.Reason
	message := clause(c.Message)
	switch {
	case c.Reason == "ScalingDisabled":
		return broken(ref, state, fmt.Sprintf("its target %s has 0 replicas, which turns scaling off", target),
			evidence,
			Remedy{Text: "Set at least one replica.", Field: "spec.replicas of " + target.String(),
				Command: "kubectl scale " + kubectlName(target) + " --replicas=1"})
	case strings.Contains(message, "missing request for"):
		_, name, _ := strings.Cut(message, "missing request for ")
		name, _, _ = strings.Cut(name, " ")
		return broken(ref, state, fmt.Sprintf(
			"a container of %s has no request for %s, of which the target is a percentage",
			target, name), evidence, Remedy{Text: "Set the request.",
			Field: "spec.template.spec.containers[*].resources.requests of " + target.String(),
			Command: "kubectl set resources " + kubectlName(target) + " --requests=" +
				arg(cmp.Or(name, "cpu")+"=AMOUNT")})
	}
	group := "metrics.k8s.io"
	if strings.Contains(message, "custom.metrics") || strings.Contains(message, "external.metrics") {
		group = "custom.metrics.k8s.io"
		if strings.Contains(message, "external.metrics") {
			group = "external.metrics.k8s.io"
		}
	}
	all, isComplete := x.dynamicList(ctx, apiServices(), "")
	found := false
	for _, a := range all {
		_, of, _ := strings.Cut(a.GetName(), ".")
		if of != group {
			continue
		}
		found = true
		if text, ok := unavailable(a); ok {
			return apiServiceFinding(a, text).below(ref, state, "it has no metrics: "+message, evidence)
		}
	}
	if !found && isComplete && strings.Contains(message, group) {
		return broken(ref, state, fmt.Sprintf("the cluster has no API for its metrics, %s", group), evidence, Remedy{
			Text: "Install a server for these metrics.", Command: "kubectl get apiservices"})
	}
	f := broken(ref, state, "it has no metrics: "+message, evidence, Remedy{Text: "See whether the pods have metrics.",
		Command: "kubectl top pods -n " + h.Namespace})
	if below := x.targetFinding(ctx, target); below != nil {
		f = below.below(ref, state, "it has no metrics: "+message, evidence)
	}
	return f
}

// targetFinding returns why the target of an autoscaler is not healthy, or nil.
func (x scaleExplainer) targetFinding(ctx context.Context, target Ref) *finding {
	apps := x.clients.Kubernetes.AppsV1()
	switch target.Kind {
	case "Deployment":
		if d, existence := find(ctx, x.reader, target, apps.Deployments(target.Namespace)); existence == present {
			return unlessHealthy(x.workload().deploymentFinding(ctx, d))
		}
	case "StatefulSet":
		if s, existence := find(ctx, x.reader, target, apps.StatefulSets(target.Namespace)); existence == present {
			return unlessHealthy(x.workload().statefulSetFinding(ctx, s))
		}
	}
	return nil
}

func unlessHealthy(f *finding) *finding {
	if f.isHealthy() {
		return nil
	}
	return f
}

func explainBudget(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	b, err := read(ctx, ref, x.clients.Kubernetes.PolicyV1().PodDisruptionBudgets(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.scale().budgetFinding(ctx, b), nil
}

// budgetFinding returns why a budget allows no evictions.
func (x scaleExplainer) budgetFinding(ctx context.Context, b *policyv1.PodDisruptionBudget) *finding {
	const state = "allows no evictions"
	ref, s := refTo("PodDisruptionBudget", b), b.Status
	if f := x.workload().staleFinding(ctx, ref, b, s.ObservedGeneration, state); f != nil {
		return f
	}
	for _, c := range s.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Status == metav1.ConditionFalse &&
			c.Reason == policyv1.SyncFailedReason {
			return broken(ref, state, "its pods cannot be counted: "+clause(c.Message), "status.conditions",
				describeRemedy(ref))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return broken(ref, state, "its selector is not valid: "+err.Error(), "spec.selector", Remedy{
			Text: "Correct the selector.", Field: "spec.selector of " + ref.String()})
	}
	pods, isComplete := x.pods(ctx, b.Namespace)
	var selected, bad []*corev1.Pod
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
			!selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		selected = append(selected, p)
		if !isReady(p) {
			bad = append(bad, p)
		}
	}
	switch {
	case len(selected) == 0 && isComplete:
		return broken(ref, "protects nothing", "no pod matches its selector", "spec.selector", Remedy{
			Text: "Correct the selector.", Field: "spec.selector of " + ref.String(),
			Command: "kubectl get pods -n " + b.Namespace + " --show-labels"})
	case s.DisruptionsAllowed > 0:
		return healthy("allows %s", count(s.DisruptionsAllowed, "eviction"))
	}
	text := fmt.Sprintf("%d pods are healthy, and at least %d must be", s.CurrentHealthy, s.DesiredHealthy)
	if s.CurrentHealthy < s.ExpectedPods && len(bad) > 0 {
		if f := x.workload().worstOf(ctx, bad); f != nil {
			return f.below(ref, state, text, "status")
		}
	}
	field, value := "spec.minAvailable", ""
	if b.Spec.MaxUnavailable != nil {
		field, value = "spec.maxUnavailable", b.Spec.MaxUnavailable.String()
	} else if b.Spec.MinAvailable != nil {
		value = b.Spec.MinAvailable.String()
	}
	return broken(ref, state, fmt.Sprintf("its %s of %s leaves no room: %s", strings.TrimPrefix(field, "spec."), value,
		text), field+", status", Remedy{Text: "Run more replicas, or let the budget allow one missing pod.",
		Field: field + " of " + ref.String(), Command: "kubectl edit " + kubectlName(ref)})
}
