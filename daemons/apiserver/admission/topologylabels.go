package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
)

// topologyLabels gives pods the zone and the region of their node as labels, so that their containers can be told where
// they run.
type topologyLabels struct{ objects api.Objects }

// Admit looks at pods that are created on a node and at those that are bound to one. What the pod said of itself there
// is overwritten.
func (p *topologyLabels) Admit(_ context.Context, a *api.Admission) error {
	if a.Resource.GroupResource() != podsGR || a.Subresource != "binding" && !is(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	obj, ok := p.objects.Get(nodesGR, "", pod.Spec.NodeName)
	if !ok {
		return nil // pods may be there before their node, and are let in
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, has := node.Labels[key]; has {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[key] = value
		}
	}
	return nil
}
