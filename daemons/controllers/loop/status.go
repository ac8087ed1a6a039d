package loop

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/kube/kubernetes"
)

// PatchPodStatus writes fields of a pod's status, unless the pod has changed since it was read. Conditions are merged
// by type. It patches because caches do not hold whole pods, so an update would lose fields.
func PatchPodStatus(
	ctx context.Context,
	client kubernetes.Interface,
	pod *corev1.Pod,
	status map[string]any,
) (*corev1.Pod, error) {
	patch, err := json.Marshal(
		map[string]any{
			"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
			"status":   status,
		},
	)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// PatchNodeConditions writes conditions of a node, unless the node has changed since it was read.
func PatchNodeConditions(
	ctx context.Context,
	client kubernetes.Interface,
	node *corev1.Node,
	conditions []corev1.NodeCondition,
) (*corev1.Node, error) {
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
			"status": map[string]any{"conditions": conditions}},
	)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().
		Nodes().
		Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}
