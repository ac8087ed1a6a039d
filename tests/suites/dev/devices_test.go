package dev

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// publishDevices publishes devices of two nodes, as a driver's plugins do, and creates a class for them.
func publishDevices(t *testing.T, name string, perNode int) {
	t.Helper()
	nodes := must[*corev1.NodeList](t)(sharedClient.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	for _, n := range nodes.Items[:2] {
		s := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + n.Name},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: name, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, ResourceSliceCount: 1}},
		}
		for i := range perNode {
			s.Spec.Devices = append(
				s.Spec.Devices,
				resourcev1.Device{
					Name: fmt.Sprintf("gpu-%d", i),
					Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
						"model": {StringValue: ptr.To("a100")}},
				},
			)
		}
		s.Spec.Devices = append(
			s.Spec.Devices,
			resourcev1.Device{
				Name: "old",
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"model": {StringValue: ptr.To("v100")},
				},
			},
		)
		must[*resourcev1.ResourceSlice](t)(sharedClient.ResourceV1().ResourceSlices().Create(t.Context(), s,
			metav1.CreateOptions{}))
	}
	must[*resourcev1.DeviceClass](t)(
		sharedClient.ResourceV1().
			DeviceClasses().
			Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: resourcev1.DeviceClassSpec{
					Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
						Expression: fmt.Sprintf(`device.driver == %q && device.attributes[%q].model == "a100"`, name,
							name)}}},
				}}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, n := range nodes.Items[:2] {
			_ = sharedClient.ResourceV1().ResourceSlices().Delete(ctx, name+"-"+n.Name, metav1.DeleteOptions{})
		}
		_ = sharedClient.ResourceV1().DeviceClasses().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

func createClaimTemplate(t *testing.T, ns, class string, count int64) {
	t.Helper()
	must[*resourcev1.ResourceClaimTemplate](t)(
		sharedClient.ResourceV1().ResourceClaimTemplates(ns).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{
				Name: "gpus",
			}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
				Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{
						{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count}},
					}}}}}, metav1.CreateOptions{}),
	)
}

// countClaimed counts the ready and the waiting pods, and checks that no device is in two claims.
func countClaimed(ctx context.Context, t *testing.T, ns string) (ready, waiting int, reason string) {
	t.Helper()
	pods, err := sharedClient.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err.Error()
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			switch {
			case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
				ready++
			case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
				waiting++
				reason = c.Message
			}
		}
	}
	claims, err := sharedClient.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err.Error()
	}
	owner := map[string]string{}
	for _, c := range claims.Items {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			device := r.Pool + "/" + r.Device
			if other, taken := owner[device]; taken {
				t.Fatalf("%s is in %s and in %s", device, other, c.Name)
			}
			owner[device] = c.Name
		}
	}
	return ready, waiting, reason
}

func TestPodsGetDevicesWhileAvailableAndReleaseThem(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	const class = "fits.example.com"
	publishDevices(t, class, 3)
	createClaimTemplate(t, ns, class, 1)
	createDeployment(t, ns, 8, func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpus")}}
		spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	waitFor(t, "six pods to run and two to wait", func(ctx context.Context) (bool, any) {
		ready, waiting, reason := countClaimed(ctx, t, ns)
		return ready == 6 && waiting == 2 &&
			strings.Contains(reason, "cannot allocate all claims"), fmt.Sprint(ready, waiting, reason)
	})
	// A device that a pod releases is given to another pod.
	pods := must[*corev1.PodList](t)(sharedClient.CoreV1().Pods(ns).List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName!="}))
	deletedPod := pods.Items[0]
	if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), deletedPod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "another pod to run in its place", func(ctx context.Context) (bool, any) {
		ready, waiting, reason := countClaimed(ctx, t, ns)
		_, err := sharedClient.CoreV1().Pods(ns).Get(ctx, deletedPod.Name, metav1.GetOptions{})
		return err != nil && ready == 6 && waiting == 2, fmt.Sprint(ready, waiting, reason)
	})
	if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the claims to go with their pods", func(ctx context.Context) (bool, any) {
		claims, err := sharedClient.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(claims.Items) == 0, claims.Items
	})
}

func TestExtendedResourcesAreAllocatedAsDevices(t *testing.T) {
	t.Parallel()
	const class = "extended.example.com"
	publishDevices(t, class, 2)
	for _, name := range []corev1.ResourceName{"extended.example.com/gpu",
		corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class)} {
		ns := createNamespace(t)
		c := must[*resourcev1.DeviceClass](t)(sharedClient.ResourceV1().DeviceClasses().Get(t.Context(), class,
			metav1.GetOptions{}))
		c.Spec.ExtendedResourceName = ptr.To("extended.example.com/gpu")
		must[*resourcev1.DeviceClass](t)(sharedClient.ResourceV1().DeviceClasses().Update(t.Context(), c,
			metav1.UpdateOptions{}))
		createDeployment(t, ns, 5, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
		})
		waitFor(t, "four pods to run and one to wait", func(ctx context.Context) (bool, any) {
			ready, waiting, reason := countClaimed(ctx, t, ns)
			return ready == 4 && waiting == 1 &&
				strings.Contains(reason, "cannot allocate all claims"), fmt.Sprint(ready, waiting, reason)
		})
		pods := must[*corev1.PodList](t)(sharedClient.CoreV1().Pods(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName!="}))
		for _, p := range pods.Items {
			status := p.Status.ExtendedResourceClaimStatus
			if status == nil || len(status.RequestMappings) != 1 ||
				status.RequestMappings[0].ResourceName != string(name) {
				t.Fatalf("the status of pod %s is %v", p.Name, status)
			}
			made := must[*resourcev1.ResourceClaim](t)(sharedClient.ResourceV1().ResourceClaims(ns).Get(t.Context(),
				status.ResourceClaimName, metav1.GetOptions{}))
			if made.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" ||
				!metav1.IsControlledBy(made, &p) {
				t.Errorf("the claim is %v", made.ObjectMeta)
			}
		}
		if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), pods.Items[0].Name,
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "another pod to run in its place", func(ctx context.Context) (bool, any) {
			ready, waiting, reason := countClaimed(ctx, t, ns)
			_, err := sharedClient.CoreV1().Pods(ns).Get(ctx, pods.Items[0].Name, metav1.GetOptions{})
			return err != nil && ready == 4 && waiting == 1, fmt.Sprint(ready, waiting, reason)
		})
		if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the claims to go with their pods", func(ctx context.Context) (bool, any) {
			claims, err := sharedClient.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
			return err == nil && len(claims.Items) == 0, claims.Items
		})
	}
}

func TestASharedClaimKeepsItsPodsTogetherAndATaintEvictsThem(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	const class = "shared.example.com"
	publishDevices(t, class, 1)
	must[*resourcev1.ResourceClaim](t)(
		sharedClient.ResourceV1().
			ResourceClaims(ns).
			Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "ours"},
				Spec: resourcev1.ResourceClaimSpec{
					Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu",
						Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}},
				}}, metav1.CreateOptions{}),
	)
	for _, name := range []string{"a", "b"} {
		spec := podSpec()
		spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("ours")}}
		must[*corev1.Pod](t)(
			sharedClient.CoreV1().
				Pods(ns).
				Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
					metav1.CreateOptions{}),
		)
	}
	var claim *resourcev1.ResourceClaim
	waitFor(t, "both pods to use the claim", func(ctx context.Context) (bool, any) {
		var err error
		claim, err = sharedClient.ResourceV1().ResourceClaims(ns).Get(ctx, "ours", metav1.GetOptions{})
		ready, _, reason := countClaimed(ctx, t, ns)
		return err == nil && len(claim.Status.ReservedFor) == 2 && ready == 2, fmt.Sprint(claim.Status, reason)
	})
	a := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "a", metav1.GetOptions{}))
	b := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "b", metav1.GetOptions{}))
	if a.Spec.NodeName != b.Spec.NodeName || claim.Status.Allocation.Devices.Results[0].Pool != a.Spec.NodeName {
		t.Fatalf("a is on %s, b on %s, and the claim has %v", a.Spec.NodeName, b.Spec.NodeName, claim.Status.Allocation)
	}
	rule := &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{
				Driver: ptr.To(class),
			}, Taint: resourcev1.DeviceTaint{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute}},
	}
	must[*resourcev1.DeviceTaintRule](t)(sharedClient.ResourceV1().DeviceTaintRules().Create(t.Context(), rule,
		metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = sharedClient.ResourceV1().DeviceTaintRules().Delete(context.Background(), class, metav1.DeleteOptions{})
	})
	waitFor(t, "the pods to be gone and the device free", func(ctx context.Context) (bool, any) {
		pods, err := sharedClient.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) > 0 {
			return false, pods
		}
		claim, err = sharedClient.ResourceV1().ResourceClaims(ns).Get(ctx, "ours", metav1.GetOptions{})
		return err == nil && claim.Status.Allocation == nil && len(claim.Finalizers) == 0, claim
	})
}
