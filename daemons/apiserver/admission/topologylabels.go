package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
)

// topologyLabels sets the zone and the region of the node as labels of a pod, so that its containers can read them.
type topologyLabels struct{ objects api.Objects }

// Admit changes pods that are created on a node, and pods that are bound to one. It overwrites such labels of the pod.
func (p *topologyLabels) Admit(_ context.Context, a *api.Admission) error {
	if a.Resource.GroupResource() != podsGR || a.Subresource != "binding" && !isOperation(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	obj, ok := p.objects.Get(nodesGR, "", pod.Spec.NodeName)
	if !ok {
		return nil // a pod may exist before its node
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, exists := node.Labels[key]; exists {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[key] = value
		}
	}
	return nil
}
