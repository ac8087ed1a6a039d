package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lookups looks up the objects that determine what a ResourceClaim uses of quotas, besides the claim itself. Without
// them, only the devices of its classes count.
type Lookups struct {
	// Class returns a device class, or nil.
	Class func(name string) *resourcev1.DeviceClass
	// Pod returns a pod, or nil.
	Pod func(namespace, name string) *corev1.Pod
	// Claims returns all ResourceClaims of a namespace.
	Claims func(namespace string) []*resourcev1.ResourceClaim
}

// extendedUsage adds the extended resources that the classes of a claim's devices provide. Amounts that the claim's pod
// requests itself are not counted twice.
func extendedUsage(c *resourcev1.ResourceClaim, out corev1.ResourceList, now time.Time, with Lookups) {
	if with.Class == nil {
		return
	}
	taken := corev1.ResourceList{}
	for name, amount := range out {
		class, ok := strings.CutSuffix(string(name), claimsPerClassSuffix)
		if !ok || class == "" {
			continue
		}
		deviceClass := with.Class(class)
		if deviceClass == nil || deviceClass.Spec.ExtendedResourceName == nil {
			continue // the class provides no resource; only its devices count
		}
		taken[corev1.ResourceName(requestsPrefix+resourcev1.ResourceDeviceClassPrefix+class)] = amount
		taken[corev1.ResourceName(requestsPrefix+*deviceClass.Spec.ExtendedResourceName)] = amount
	}
	if len(taken) == 0 {
		return
	}
	own := corev1.ResourceList{}
	if pod := chargedPod(c, with); pod != nil {
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

// chargedPod returns the pod for whose extended resources a claim was created, or nil. If several claims refer to the
// pod, only the claim that the pod's status names counts, or else the oldest. Otherwise users could get devices without
// using quota, by creating such claims.
func chargedPod(c *resourcev1.ResourceClaim, with Lookups) *corev1.Pod {
	owner := owningPod(c)
	if owner == nil || with.Pod == nil {
		return nil
	}
	pod := with.Pod(c.Namespace, owner.Name)
	if pod == nil || pod.UID != owner.UID {
		return nil
	}
	if claims := pod.Status.ExtendedResourceClaimStatus; claims != nil {
		if claims.ResourceClaimName != c.Name {
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
		// A claim that is being created has no timestamp yet, and is the newest.
		earlier := c.CreationTimestamp.IsZero() && !other.CreationTimestamp.IsZero() ||
			other.CreationTimestamp.Before(&c.CreationTimestamp)
		if earlier || other.CreationTimestamp.Equal(&c.CreationTimestamp) && other.Name < c.Name {
			return nil
		}
	}
	return pod
}

// owningPod returns the owner reference of a claim that, by its annotation, was created for a pod's extended resources.
// It returns nil for other claims.
func owningPod(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" ||
		owner.APIVersion != "v1" {
		return nil
	}
	return owner
}
