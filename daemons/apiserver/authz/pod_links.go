package authz

import (
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// podLinks remembers which pod gave a node access to an object. So the next check reads only that pod.
type podLinks struct {
	mu   sync.Mutex
	pods map[podLink]podKey
}

type podLink struct{ node, resource, namespace, name string }

type podKey struct {
	namespace, name string
	uid             types.UID
}

const maxLinks = 65536

// hasReferringPod reports whether a pod on the node refers to the object.
func (n *Node) hasReferringPod(node, resource, namespace, name string) bool {
	switch resource {
	case "volumeattachments":
		obj, ok := n.objects.Get(schema.GroupResource{Group: storagev1.GroupName, Resource: resource}, "", name)
		return ok && obj.(*storagev1.VolumeAttachment).Spec.NodeName == node
	case "persistentvolumes":
		// A volume is linked to a node by the claim that it is bound to.
		obj, ok := n.objects.Get(schema.GroupResource{Resource: resource}, "", name)
		if !ok {
			return false
		}
		claim := obj.(*corev1.PersistentVolume).Spec.ClaimRef
		return claim != nil && n.hasReferringPod(node, "persistentvolumeclaims", claim.Namespace, claim.Name)
	}
	key := podLink{node, resource, namespace, name}
	n.links.mu.Lock()
	reason, ok := n.links.pods[key]
	n.links.mu.Unlock()
	if ok {
		if pod, found := n.podOnNode(reason.namespace, reason.name); found && pod.UID == reason.uid &&
			pod.Spec.NodeName == node {
			return true
		}
	}
	for _, obj := range n.objects.List(schema.GroupResource{Resource: "pods"}, namespace) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName != node || !podRefers(pod, resource, name) {
			continue
		}
		n.links.mu.Lock()
		if len(n.links.pods) >= maxLinks {
			clear(n.links.pods)
		}
		n.links.pods[key] = podKey{pod.Namespace, pod.Name, pod.UID}
		n.links.mu.Unlock()
		return true
	}
	return resource == "secrets" && n.isNeededToMount(node, namespace, name)
}

// podRefers reports whether a pod needs the object in its namespace. A mirror pod needs none: its manifest is on the
// machine, and the kubelet controls the content of the mirror pod.
func podRefers(pod *corev1.Pod, resource, name string) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	for r, n := range PodReferences(pod) {
		if r == resource && n == name {
			return true
		}
	}
	return resource == "resourceclaims" && podHasClaim(pod, name)
}

// podHasClaim reports whether a resource claim was created for the pod, from a template or for extended resources.
func podHasClaim(pod *corev1.Pod, name string) bool {
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil && e.ResourceClaimName == name {
		return true
	}
	return slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool {
		return s.ResourceClaimName != nil && *s.ResourceClaimName == name
	})
}

// PodReferences yields the resources and names of the objects in a pod's namespace that the pod needs.
func PodReferences(pod *corev1.Pod) iter.Seq2[string, string] {
	return func(yield func(resource, name string) bool) {
		if pod.Spec.ServiceAccountName != "" && !yield("serviceaccounts", pod.Spec.ServiceAccountName) {
			return
		}
		for _, s := range pod.Spec.ImagePullSecrets {
			if !yield("secrets", s.Name) {
				return
			}
		}
		for i := range pod.Spec.Volumes {
			if !volumeReferences(pod, &pod.Spec.Volumes[i], yield) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			if !environmentReferences(pod.Spec.InitContainers[i].Env, pod.Spec.InitContainers[i].EnvFrom, yield) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !environmentReferences(pod.Spec.Containers[i].Env, pod.Spec.Containers[i].EnvFrom, yield) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !environmentReferences(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom,
				yield) {
				return
			}
		}
		for _, claim := range pod.Spec.ResourceClaims {
			if claim.ResourceClaimName != nil && !yield("resourceclaims", *claim.ResourceClaimName) {
				return
			}
			if claim.ResourceClaimTemplateName != nil &&
				!yield("resourceclaimtemplates", *claim.ResourceClaimTemplateName) {
				return
			}
		}
	}
}

func volumeReferences(pod *corev1.Pod, v *corev1.Volume, yield func(resource, name string) bool) bool {
	if secret := mountSecret(v); secret != "" && !yield("secrets", secret) {
		return false
	}
	switch {
	case v.PersistentVolumeClaim != nil:
		return yield("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		return yield("persistentvolumeclaims", pod.Name+"-"+v.Name)
	case v.ConfigMap != nil:
		return yield("configmaps", v.ConfigMap.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil && !yield("secrets", s.Secret.Name) ||
				s.ConfigMap != nil && !yield("configmaps", s.ConfigMap.Name) {
				return false
			}
		}
	}
	return true
}

func environmentReferences(
	env []corev1.EnvVar,
	from []corev1.EnvFromSource,
	yield func(resource, name string) bool,
) bool {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil && !yield("secrets", ref.Name) {
			return false
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil && !yield("configmaps", ref.Name) {
			return false
		}
	}
	for _, f := range from {
		if f.SecretRef != nil && !yield("secrets", f.SecretRef.Name) ||
			f.ConfigMapRef != nil && !yield("configmaps", f.ConfigMapRef.Name) {
			return false
		}
	}
	return true
}
