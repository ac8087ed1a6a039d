package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/scheduler/profile"
	"clusterctl/kube/kubernetes/fake"
)

const gpuResource = "example.com/gpu"

// gpuClass returns a class that may provide an extended resource.
func gpuClass(name string, resource *string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: resource,
			Selectors: []resourcev1.DeviceSelector{
				{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}},
			}},
	}
}

// gpuSlice returns the slice of a node's driver.
func gpuSlice(node string, count int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus-" + node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}},
	}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	return s
}

// assignNamesAndUIDs makes the fake API set names and UIDs of claims, as the real one does.
func assignNamesAndUIDs(api *fake.Clientset) {
	made := 0
	react(api, "create", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c := action.(clienttesting.CreateAction).GetObject().(*resourcev1.ResourceClaim)
		made++
		c.Name, c.UID = fmt.Sprintf("%s%d", c.GenerateName, made), types.UID(fmt.Sprintf("made-%d", made))
		return false, nil, nil
	})
}

func listClaims(t *testing.T, api *fake.Clientset) []resourcev1.ResourceClaim {
	t.Helper()
	list, err := api.ResourceV1().ResourceClaims("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func createPod(t *testing.T, api *fake.Clientset, p *corev1.Pod) {
	t.Helper()
	if _, err := api.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestExtendedResourcesOfAClassAreAllocatedAsDevices(t *testing.T) {
	for what, name := range map[string]string{"by its name": gpuResource,
		"by the class's": resourcev1.ResourceDeviceClassPrefix + "gpu"} {
		t.Run(what, func(t *testing.T) {
			api := startScheduler(t, node("n1"), node("n2"), gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n2", 3))
			assignNamesAndUIDs(api)
			createPod(t, api, pod("p", withRequest(name, "2")))
			waitFor(t, isPlacedOn(t, api, "p", "n2"))
			list := listClaims(t, api)
			if len(list) != 1 {
				t.Fatalf("%d claims", len(list))
			}
			c, p := list[0], getPod(t, api, "p")
			if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || !metav1.IsControlledBy(&c, p) ||
				!slices.Contains(c.Finalizers, resourcev1.Finalizer) {
				t.Errorf("the claim's metadata is %v", c.ObjectMeta)
			}
			if c.Status.Allocation == nil || len(c.Status.Allocation.Devices.Results) != 2 ||
				len(c.Status.ReservedFor) != 1 ||
				c.Status.ReservedFor[0].UID != p.UID {
				t.Errorf("the claim's status is %v", c.Status)
			}
			status := p.Status.ExtendedResourceClaimStatus
			if status == nil || status.ResourceClaimName != c.Name || len(status.RequestMappings) != 1 {
				t.Fatalf("the status of the pod is %v", status)
			}
			m := status.RequestMappings[0]
			if m.ContainerName != p.Spec.Containers[0].Name || m.ResourceName != name ||
				m.RequestName != c.Spec.Devices.Requests[0].Name ||
				m.RequestName != "container-0-request-0" {
				t.Errorf("the status of the pod is %v of %v", m, c.Spec.Devices.Requests)
			}
			// One device is left, and two pods want it.
			createPod(t, api, pod("q", withRequest(name, "2")))
			waitFor(t, hasEvent(api, "FailedScheduling", "cannot allocate all claims"))
			createPod(t, api, pod("r", withRequest(name, "1")))
			waitFor(t, isPlacedOn(t, api, "r", "n2"))
		})
	}
}

func TestNodesThatListTheResourceNeedNoDevices(t *testing.T) {
	api := startScheduler(t, node("n1",
		func(n *corev1.Node) { n.Status.Allocatable[gpuResource] = resource.MustParse("2") }),
		gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n1", 3))
	assignNamesAndUIDs(api)
	p := pod("p", withRequest(gpuResource, "2"))
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "of an earlier try",
	}
	createPod(t, api, p)
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
	if list := listClaims(t, api); len(list) > 0 {
		t.Errorf("claims %v", list)
	}
	if status := getPod(t, api, "p").Status.ExtendedResourceClaimStatus; status != nil {
		t.Errorf("the status of the pod is %v", status)
	}
	// no devices are used in addition to the node's own amount
	createPod(t, api, pod("q", withRequest(gpuResource, "1")))
	waitFor(t, hasEvent(api, "FailedScheduling", "Insufficient example.com/gpu"))
}

func TestPodsWaitForTheDeviceClassOfAnExtendedResource(t *testing.T) {
	api := startScheduler(t, node("n1"), gpuSlice("n1", 1))
	assignNamesAndUIDs(api)
	createPod(t, api, pod("p", withRequest(gpuResource, "1")))
	waitFor(t, hasEvent(api, "FailedScheduling", "Insufficient example.com/gpu"))
	if _, err := api.ResourceV1().DeviceClasses().Create(context.Background(), gpuClass("gpu", ptr.To(gpuResource)),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
}

func TestLeftOverClaimsAreDeletedBeforeThePodIsScheduled(t *testing.T) {
	p := pod("p", withRequest(gpuResource, "1"))
	old := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        "old",
			UID:         "uid-old",
			Finalizers:  []string{resourcev1.Finalizer},
			Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")),
			},
		},
	}
	old.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "container-0-request-0", Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}}},
	}
	api := startScheduler(t, node("n1"), gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n1", 1), old)
	assignNamesAndUIDs(api)
	createPod(t, api, p)
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
	if list := listClaims(t, api); len(list) != 1 || list[0].Name == "old" {
		t.Errorf("claims %v", list)
	}
	waitFor(t, hasEvent(api, "FailedScheduling", "0/1 nodes are available: 1 cannot schedule extended resource claim."))
}

// A claim of an earlier attempt affects only its own pod. Equal pods are scheduled while it cannot be deleted.
func TestLeftOverClaimsDoNotBlockOtherPods(t *testing.T) {
	p := pod("p", withRequest(gpuResource, "1"))
	old := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", UID: "uid-old",
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")),
		}}}
	old.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "container-0-request-0", Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}}},
	}
	api := startScheduler(t, node("n1"), gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n1", 4), old)
	assignNamesAndUIDs(api)
	var free atomic.Bool
	react(api, "delete", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !free.Load(), nil, errors.New("the API is away")
	})
	createPod(t, api, p)
	for _, name := range []string{"q", "r"} {
		createPod(t, api, pod(name, withRequest(gpuResource, "1")))
		waitFor(t, isPlacedOn(t, api, name, "n1"))
	}
	waitFor(t, hasEvent(api, "FailedScheduling", "0/1 nodes are available: 1 cannot schedule extended resource claim."))
	createPod(t, api, pod("s", withRequest(gpuResource, "1")))
	waitFor(t, isPlacedOn(t, api, "s", "n1"))
	if on := getPod(t, api, "p").Spec.NodeName; on != "" {
		t.Fatalf("the pod with the claim is placed on %s", on)
	}
	free.Store(true)
	if err := api.ResourceV1().ResourceClaims("default").Delete(context.Background(), "old",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
}

func TestExtendedResourceClaimsAreDeletedWhenBindingFails(t *testing.T) {
	for _, fails := range []string{"resourceclaims/status", "pods/status", "pods/binding"} {
		t.Run(fails, func(t *testing.T) {
			api := startScheduler(t, node("n1"), gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n1", 1))
			assignNamesAndUIDs(api)
			failed := false
			react(api, "*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetResource().Resource+"/"+action.GetSubresource() != fails || failed {
					return false, nil, nil
				}
				failed = true
				return true, nil, errors.New("the API is away")
			})
			createPod(t, api, pod("p", withRequest(gpuResource, "1")))
			waitFor(t, isPlacedOn(t, api, "p", "n1"))
			if list := listClaims(t, api); len(list) != 1 ||
				getPod(t, api, "p").Status.ExtendedResourceClaimStatus.ResourceClaimName != list[0].Name {
				t.Errorf("claims %v", list)
			}
			if !failed {
				t.Error("nothing has failed")
			}
		})
	}
}

func TestInitContainersShareDevicesWithLaterContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(name, count string, restart *corev1.ContainerRestartPolicy) corev1.Container {
		return corev1.Container{
			Name:          name,
			RestartPolicy: restart,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse("1m"), gpuResource: resource.MustParse(count)}},
		}
	}
	api := startScheduler(t, node("n1"), gpuClass("gpu", ptr.To(gpuResource)), gpuSlice("n1", 9))
	assignNamesAndUIDs(api)
	createPod(t, api, pod("p", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			container("early", "4", nil),
			container("beside", "1", &always),
			container("late", "5", nil),
		}
		p.Spec.Containers = []corev1.Container{container("main", "2", nil)}
	}))
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
	var requests []string
	for _, r := range listClaims(t, api)[0].Spec.Devices.Requests {
		requests = append(requests, fmt.Sprint(r.Name, " ", r.Exactly.Count))
	}
	// late needs 5 besides the sidecar's one, and the main container's two are free until late has ended.
	if want := []string{"container-1-request-1 1", "container-2-request-1 3", "container-3-request-1 2"}; !slices.Equal(
		requests,
		want,
	) {
		t.Errorf("requests are %q, not %q", requests, want)
	}
	var mappings []string
	for _, m := range getPod(t, api, "p").Status.ExtendedResourceClaimStatus.RequestMappings {
		mappings = append(mappings, m.ContainerName+" "+m.RequestName)
	}
	if want := []string{"beside container-1-request-1", "main container-3-request-1", "early container-1-request-1",
		"early container-3-request-1",
		"early container-2-request-1", "late container-3-request-1", "late container-2-request-1"}; !slices.Equal(
		mappings,
		want,
	) {
		t.Errorf("mappings are %q, not %q", mappings, want)
	}
}

// The resource filter can be configured to ignore a resource. If no node has it, devices do not provide it either.
func TestIgnoredResourcesAreNotAllocatedAsDevices(t *testing.T) {
	settings, err := profile.Parse(
		[]byte(`{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [
		{"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/nic"]}}]}]}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(
		[]*corev1.Node{
			node("n1"),
			node("n2", func(n *corev1.Node) { n.Status.Allocatable["example.com/nic"] = resource.MustParse("0") }),
		},
	)
	c.Devices.Set(gpuClass("gpu", ptr.To(gpuResource)))
	c.Devices.Set(gpuSlice("n1", 1))
	c.Devices.Set(gpuSlice("n2", 1))
	s := newSearch(settings.Profiles[0], c,
		convertPod(pod("p", withRequest(gpuResource, "1"), withRequest("example.com/nic", "1"))), nil)
	if r := s.checkNode(c.Node("n1")); r == nil || r.Reasons[0] != "cannot fit resource" || !r.IsFinal {
		t.Errorf("n1: %v", r)
	}
	if r := s.checkNode(c.Node("n2")); r != nil {
		t.Errorf("n2: %v", r)
	}
}

func TestTheNewestOfTwoClassesForAResourceIsUsed(t *testing.T) {
	at := func(c *resourcev1.DeviceClass, second int) *resourcev1.DeviceClass {
		c.CreationTimestamp = metav1.Unix(int64(second), 0)
		return c
	}
	for what, in := range map[string]struct {
		a, b int
		want string
	}{"later": {1, 2, "b"}, "earlier": {2, 1, "a"}, "at once": {1, 1, "a"}} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(nil)
			c.Devices.Set(at(gpuClass("b", ptr.To(gpuResource)), in.b))
			c.Devices.Set(at(gpuClass("a", ptr.To(gpuResource)), in.a))
			if got := c.Devices.ClassFor(gpuResource); got == nil || got.Name != in.want {
				t.Errorf("class %v", got)
			}
			c.Devices.Delete(gpuClass(in.want, nil))
			if got := c.Devices.ClassFor(gpuResource); got == nil || got.Name == in.want {
				t.Errorf("class %v when that is gone", got)
			}
		})
	}
}
