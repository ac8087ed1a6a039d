package cluster

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Whoever may write claims in a namespace says in them for which pod they are. That concerns no pods of other
// namespaces: one for which there is a claim already is not placed, and the claim is deleted.
func TestAClaimForExtendedResourcesIsForPodsOfItsNamespaceAlone(t *testing.T) {
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
	if c := d.Made(pod); c == nil || c.Namespace != "shop" {
		t.Errorf("the pod's claim is %v", c)
	}
	d.Drop(claim("shop"))
	if c := d.Made(pod); c != nil {
		t.Errorf("the claim of namespace %s is taken for the pod's", c.Namespace)
	}
}
