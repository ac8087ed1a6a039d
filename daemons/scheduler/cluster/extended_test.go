package cluster

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A user who may write claims in a namespace can name any pod in them. Such a claim must not affect pods in other
// namespaces, since it would keep them from being scheduled.
func TestExtendedResourceClaimsApplyOnlyInTheirNamespace(t *testing.T) {
	claim := func(namespace string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", UID: "of-claim",
			Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "of-pod", Controller: ptr.To(true)},
			}}}
	}
	d, pod := newDevices(), &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "of-pod"}}
	d.Set(claim("shop"))
	d.Set(claim("tenant"))
	if c := d.CreatedClaim(pod); c == nil || c.Namespace != "shop" {
		t.Errorf("the pod's claim is %v", c)
	}
	d.Delete(claim("shop"))
	if c := d.CreatedClaim(pod); c != nil {
		t.Errorf("the claim of namespace %s is taken for the pod's", c.Namespace)
	}
}
