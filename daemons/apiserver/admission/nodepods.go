package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/authz"
)

// checkMirrorPod lets a kubelet create only mirror pods of its static pods. A mirror pod must be owned by the node's
// current object. It must not refer to other objects, because a node may read the objects that its pods refer to.
func (p *nodeRestriction) checkMirrorPod(ctx context.Context, node string, a *api.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	switch {
	case !isMirrorPod(pod):
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods",
			corev1.MirrorPodAnnotationKey, node)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := p.checkOwner(ctx, node, pod); err != nil {
		return err
	}
	if pod.Spec.ServiceAccountName != "" {
		return fmt.Errorf("node %q can not create pods that reference a service account", node)
	}
	for resource := range authz.PodReferences(pod) {
		return fmt.Errorf("node %q can not create pods that reference %s", node, resource)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil {
			return fmt.Errorf("node %q can not create pods that reference projected volumes", node)
		}
	}
	return nil
}

// checkOwner requires the node to be a pod's only owner, and its controller.
func (p *nodeRestriction) checkOwner(ctx context.Context, node string, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	}
	switch o := pod.OwnerReferences[0]; {
	case o.APIVersion != "v1" || o.Kind != "Node" || o.Name != node:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	case o.Controller == nil || !*o.Controller:
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	case o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion:
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	default:
		obj, err := currentObject(ctx, p.objects, nodesGR, "", node)
		if err != nil {
			return err
		}
		if obj == nil {
			return fmt.Errorf("error looking up node %s to verify uid: node %q not found", node, node)
		}
		if uID := obj.(*corev1.Node).UID; o.UID != uID {
			return fmt.Errorf("node %s UID mismatch: expected %s got %s", node, o.UID, uID)
		}
	}
	return nil
}
