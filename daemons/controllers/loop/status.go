package loop

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/kube/kubernetes"
)

// PatchPodStatus writes fields of a pod's status, as long as the pod is what it was seen as. Conditions are merged by
// their types. Caches do not hold whole pods, which is why none is written back as it is.
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

// PatchNodeConditions writes conditions of a node, as long as the node is what it was seen as.
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
