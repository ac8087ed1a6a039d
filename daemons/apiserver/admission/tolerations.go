package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
)

// tolerations lets every pod stay for five minutes on a node that is not ready or unreachable.
type tolerations struct{}

const defaultTolerationSeconds = int64(300)

// Admit adds the tolerations that the pod lacks.
func (tolerations) Admit(_ context.Context, a *api.Admission) error {
	if a.Resource.GroupResource() != podsGR || a.Subresource != "" ||
		a.Operation != "CREATE" && a.Operation != "UPDATE" {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if tolerates(pod, key) {
			continue
		}
		seconds := defaultTolerationSeconds
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: &seconds,
		})
	}
	return nil
}

func tolerates(pod *corev1.Pod, key string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

// taintNodes keeps pods from a new node until it is ready.
type taintNodes struct{}

// Admit adds the taint to a new node. The node controller removes it.
func (taintNodes) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", nodesGR) {
		return nil
	}
	node, ok := a.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule {
			return nil
		}
	}
	node.Spec.Taints = append(node.Spec.Taints,
		corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	return nil
}
