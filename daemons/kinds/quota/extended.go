package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Others are the objects beside a claim of devices that say what it takes of quotas. Without them, it takes the devices
// of its classes alone.
type Others struct {
	// Class returns a class of devices, nil if there is none of that name.
	Class func(name string) *resourcev1.DeviceClass
	// Pod returns a pod, nil if there is none of that name.
	Pod func(namespace, name string) *corev1.Pod
	// Claims are all claims of devices of a namespace.
	Claims func(namespace string) []*resourcev1.ResourceClaim
}

// extendedUsage adds the extended resources that the classes of a claim's devices stand for. What a pod takes of them
// itself is not taken once more by the claim that was made for it.
func extendedUsage(c *resourcev1.ResourceClaim, out corev1.ResourceList, now time.Time, with Others) {
	if with.Class == nil {
		return
	}
	taken := corev1.ResourceList{}
	for name, amount := range out {
		class, ok := strings.CutSuffix(string(name), devicesOf)
		if !ok || class == "" {
			continue
		}
		is := with.Class(class)
		if is == nil || is.Spec.ExtendedResourceName == nil {
			continue // claims of a class that stands for no resource are bounded by their devices
		}
		taken[corev1.ResourceName(requests+resourcev1.ResourceDeviceClassPrefix+class)] = amount
		taken[corev1.ResourceName(requests+*is.Spec.ExtendedResourceName)] = amount
	}
	if len(taken) == 0 {
		return
	}
	own := corev1.ResourceList{}
	if pod := asker(c, with); pod != nil {
		own = Usage(pods, pod, now, with)
	}
	for name, amount := range taken {
		amount = amount.DeepCopy()
		amount.Sub(own[name])
		if amount.Sign() > 0 {
			out[name] = amount
		}
	}
}

// asker returns the pod for whose extended resources a claim was made, nil if it was made for none. Of several claims
// that say so, the one counts that the pod names, or else the first: who may write claims must not have devices without
// taking of the quota.
func asker(c *resourcev1.ResourceClaim, with Others) *corev1.Pod {
	owner := owningPod(c)
	if owner == nil || with.Pod == nil {
		return nil
	}
	pod := with.Pod(c.Namespace, owner.Name)
	if pod == nil || pod.UID != owner.UID {
		return nil
	}
	if said := pod.Status.ExtendedResourceClaimStatus; said != nil {
		if said.ResourceClaimName != c.Name {
			return nil
		}
		return pod
	}
	if with.Claims == nil {
		return nil
	}
	for _, other := range with.Claims(c.Namespace) {
		of := owningPod(other)
		if of == nil || of.UID != owner.UID {
			continue
		}
		// One that is being created has no time yet, and is the last.
		earlier := c.CreationTimestamp.IsZero() && !other.CreationTimestamp.IsZero() ||
			other.CreationTimestamp.Before(&c.CreationTimestamp)
		if earlier || other.CreationTimestamp.Equal(&c.CreationTimestamp) && other.Name < c.Name {
			return nil
		}
	}
	return pod
}

// owningPod refers to the pod for whose extended resources a claim says that it was made.
func owningPod(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" ||
		owner.APIVersion != "v1" {
		return nil
	}
	return owner
}
