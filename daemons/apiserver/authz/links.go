package authz

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// links remembers which pod was the reason for a node to see an object, so that
// asking again is a look at one pod.
type links struct {
	mu sync.Mutex
	at map[link]podKey
}

type link struct{ node, resource, namespace, name string }

type podKey struct {
	namespace, name string
	uid             types.UID
}

const maxLinks = 65536

// linked says whether a pod on the node refers to the object.
func (n *Node) linked(node, resource, namespace, name string) bool {
	switch resource {
	case "volumeattachments":
		obj, ok := n.objects.Get(schema.GroupResource{Group: storagev1.GroupName, Resource: resource}, "", name)
		return ok && obj.(*storagev1.VolumeAttachment).Spec.NodeName == node
	case "persistentvolumes":
		// A volume belongs to a node by way of the claim that it is bound to.
		obj, ok := n.objects.Get(schema.GroupResource{Resource: resource}, "", name)
		if !ok {
			return false
		}
		claim := obj.(*corev1.PersistentVolume).Spec.ClaimRef
		return claim != nil && n.linked(node, "persistentvolumeclaims", claim.Namespace, claim.Name)
	}
	key := link{node, resource, namespace, name}
	n.known.mu.Lock()
	reason, ok := n.known.at[key]
	n.known.mu.Unlock()
	if ok {
		if pod, found := n.pod(reason.namespace, reason.name); found && pod.UID == reason.uid && pod.Spec.NodeName == node {
			return true
		}
	}
	for _, obj := range n.objects.List(schema.GroupResource{Resource: "pods"}, namespace) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName != node || !refers(pod, resource, name) {
			continue
		}
		n.known.mu.Lock()
		if len(n.known.at) >= maxLinks {
			clear(n.known.at)
		}
		n.known.at[key] = podKey{pod.Namespace, pod.Name, pod.UID}
		n.known.mu.Unlock()
		return true
	}
	return false
}

// refers says whether a pod needs the object in its namespace.
func refers(pod *corev1.Pod, resource, name string) bool {
	switch resource {
	case "serviceaccounts":
		return pod.Spec.ServiceAccountName == name
	case "secrets":
		for _, s := range pod.Spec.ImagePullSecrets {
			if s.Name == name {
				return true
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if volumeRefers(pod, &pod.Spec.Volumes[i], resource, name) {
			return true
		}
	}
	if resource == "persistentvolumeclaims" {
		return false
	}
	for i := range pod.Spec.InitContainers {
		if environmentRefers(pod.Spec.InitContainers[i].Env, pod.Spec.InitContainers[i].EnvFrom, resource, name) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if environmentRefers(pod.Spec.Containers[i].Env, pod.Spec.Containers[i].EnvFrom, resource, name) {
			return true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if environmentRefers(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom, resource, name) {
			return true
		}
	}
	return false
}

func volumeRefers(pod *corev1.Pod, v *corev1.Volume, resource, name string) bool {
	switch resource {
	case "persistentvolumeclaims":
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == name
	case "secrets":
		if v.Secret != nil && v.Secret.SecretName == name || v.CSI != nil && v.CSI.NodePublishSecretRef != nil && v.CSI.NodePublishSecretRef.Name == name {
			return true
		}
	case "configmaps":
		if v.ConfigMap != nil && v.ConfigMap.Name == name {
			return true
		}
	}
	if v.Projected == nil {
		return false
	}
	for _, s := range v.Projected.Sources {
		if resource == "secrets" && s.Secret != nil && s.Secret.Name == name || resource == "configmaps" && s.ConfigMap != nil && s.ConfigMap.Name == name {
			return true
		}
	}
	return false
}

func environmentRefers(env []corev1.EnvVar, from []corev1.EnvFromSource, resource, name string) bool {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if resource == "secrets" && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == name ||
			resource == "configmaps" && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == name {
			return true
		}
	}
	for _, f := range from {
		if resource == "secrets" && f.SecretRef != nil && f.SecretRef.Name == name ||
			resource == "configmaps" && f.ConfigMapRef != nil && f.ConfigMapRef.Name == name {
			return true
		}
	}
	return false
}
