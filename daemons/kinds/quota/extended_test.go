package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The test covers what a ResourceClaim uses of the extended resource of its class, in addition to the requests of its
// pod.
func TestDevicesCountAsTheExtendedResourceOfTheirClass(t *testing.T) {
	asks := pod(list("example.com/gpu", "2"), nil,
		func(p *corev1.Pod) { p.Namespace, p.Name, p.UID = "shop", "p", "p" })
	named := asks.DeepCopy()
	named.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
	special := func(c *resourcev1.ResourceClaim) {
		c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		c.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p", Controller: ptr(true)},
		}
	}
	changed := func(change func(*resourcev1.ResourceClaim)) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			special(c)
			change(c)
		}
	}
	earlier := gpuClaim("gpu", 2, changed(func(c *resourcev1.ResourceClaim) {
		c.Name, c.CreationTimestamp = "earlier", metav1.NewTime(noon.Add(-time.Second))
	}))
	all := func(n string) corev1.ResourceList {
		return list("count/resourceclaims.resource.k8s.io", "1", "gpu.deviceclass.resource.k8s.io/devices", "2",
			"requests.example.com/gpu", n, "requests.deviceclass.resource.kubernetes.io/gpu", "2")
	}
	whole := all("2")
	less := all("2")
	delete(less, "requests.example.com/gpu")
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		pod   *corev1.Pod
		other *resourcev1.ResourceClaim
		want  corev1.ResourceList
	}{
		"a claim of a user": {gpuClaim("gpu", 2, nil), asks, nil, whole},
		"a claim of a class that stands for none": {gpuClaim("nic", 2, nil), asks, nil,
			list("count/resourceclaims.resource.k8s.io", "1", "nic.deviceclass.resource.k8s.io/devices", "2")},
		"a claim of a class that is gone": {gpuClaim("tpu", 2, nil), asks, nil,
			list("count/resourceclaims.resource.k8s.io", "1", "tpu.deviceclass.resource.k8s.io/devices", "2")},
		"the one that was made for a pod": {gpuClaim("gpu", 2, special), named, nil, less},
		"one that is being made for a pod": {gpuClaim("gpu", 2,
			changed(func(c *resourcev1.ResourceClaim) { c.CreationTimestamp = metav1.Time{} })), asks, nil, less},
		"another than the pod names": {gpuClaim("gpu", 2,
			changed(func(c *resourcev1.ResourceClaim) { c.Name = "more" })), named, nil, whole},
		"the second for a pod that names none": {gpuClaim("gpu", 2, special), asks, earlier, whole},
		"a second one that is being made": {gpuClaim("gpu", 2,
			changed(func(c *resourcev1.ResourceClaim) { c.CreationTimestamp = metav1.Time{} })), asks, earlier, whole},
		"the first for a pod that names none": {earlier, asks, gpuClaim("gpu", 2, special), less},
		"one for a pod that is gone":          {gpuClaim("gpu", 2, special), nil, nil, whole},
		"one for a former pod of the name": {gpuClaim("gpu", 2,
			changed(func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].UID = "former" })), named, nil, whole},
		"one without the annotation": {gpuClaim("gpu", 2,
			changed(func(c *resourcev1.ResourceClaim) { c.Annotations = nil })), named, nil, whole},
		"one with more than the pod has asked for": {gpuClaim("gpu", 2, special),
			pod(list("example.com/gpu", "1"), nil,
				func(p *corev1.Pod) { p.Namespace, p.Name, p.UID = "shop", "p", "p" }), nil, all("1")},
	} {
		claims := []*resourcev1.ResourceClaim{c.claim}
		if c.other != nil {
			claims = append(claims, c.other)
		}
		got := Usage(devices, c.claim, noon, testLookups(c.pod, claims...))
		if !Same(got, c.want) {
			t.Errorf("%s: %v, want %v", name, text(got), text(c.want))
		}
	}
}

// gpuClaim returns a claim of n devices of a class.
func gpuClaim(class string, n int64, change func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "made", CreationTimestamp: metav1.NewTime(noon)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: class,
					AllocationMode:  "ExactCount",
					Count:           n,
				},
			}}}},
	}
	if change != nil {
		change(c)
	}
	return c
}

// testLookups returns lookups of three classes, of a pod, and of claims.
func testLookups(pod *corev1.Pod, claims ...*resourcev1.ResourceClaim) Lookups {
	return Lookups{
		Class: func(class string) *resourcev1.DeviceClass {
			switch class {
			case "gpu":
				return &resourcev1.DeviceClass{
					Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr("example.com/gpu")},
				}
			case "nic":
				return &resourcev1.DeviceClass{}
			}
			return nil
		},
		Pod: func(namespace, name string) *corev1.Pod {
			if namespace == "shop" && name == "p" {
				return pod
			}
			return nil
		},
		Claims: func(string) []*resourcev1.ResourceClaim {
			return claims
		},
	}
}

func TestExtendedResourcesAreCountedOfPodsAndClaims(t *testing.T) {
	for _, name := range []corev1.ResourceName{"requests.example.com/gpu",
		"requests.deviceclass.resource.kubernetes.io/gpu"} {
		if of := CountedResources(name); len(of) != 2 || of[0] != pods || of[1] != devices {
			t.Errorf("%s is counted of %v", name, of)
		}
	}
	if of := CountedResources("requests.deviceclass.resource.kubernetes.io/"); len(of) > 0 {
		t.Errorf("a class without a name is counted of %v", of)
	}
}
