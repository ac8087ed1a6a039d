package why

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/ptr"

	"clusterctl/kube/kubernetes/fake"
)

// newTestClients returns clients of some objects. Untyped ones are read by the dynamic client. log is the log of every
// container.
func newTestClients(log string, objects ...runtime.Object) (Clients, *fake.Clientset) {
	var typed, untyped []runtime.Object
	for _, o := range objects {
		if _, ok := o.(*unstructured.Unstructured); ok {
			untyped = append(untyped, o)
		} else {
			typed = append(typed, o)
		}
	}
	client := fake.NewClientset(typed...)
	lists := map[schema.GroupVersionResource]string{
		apiServices():                            "APIServiceList",
		{Version: "v1", Resource: "limitranges"}: "LimitRangeList",
		{Version: "v1", Resource: "pods"}:        "PodList",
		{Version: "v1", Resource: "configmaps"}:  "ConfigMapList",
		{Group: "admissionregistration.k8s.io", Version: "v1",
			Resource: "validatingwebhookconfigurations"}: "ValidatingWebhookConfigurationList",
		{Group: "admissionregistration.k8s.io", Version: "v1",
			Resource: "mutatingwebhookconfigurations"}: "MutatingWebhookConfigurationList",
	}
	return Clients{
		Kubernetes: client, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
			untyped...),
		Logs: func(context.Context, *corev1.Pod, string, bool) ([]byte, error) {
			if log == "" {
				return nil, errors.New("no log")
			}
			return []byte(log), nil
		},
	}, client
}

const testNamespace = "shop"

// newMeta returns metadata whose UID is derived from the name.
func newMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: testNamespace, Name: name, UID: types.UID("uid-" + name), Generation: 1}
}

// newPod returns a scheduled pod with the container app.
func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: newMeta(name)}
	p.Labels = map[string]string{"app": "web"}
	p.Spec.NodeName = "a"
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example/web:v1"}}
	p.Status.Phase = corev1.PodPending
	for _, c := range change {
		c(p)
	}
	return p
}

func readyPod(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = "10.0.0.7"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, Started: ptr.To(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// crashing returns a change to a pod whose container was restarted four times.
func crashing(reason string, code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		waitingFor("CrashLoopBackOff", "back-off 1m20s restarting failed container")(p)
		p.Status.Phase = corev1.PodRunning
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = 4
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}
	}
}

// unready returns a change to a pod whose container runs, and whose probe fails.
func unready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Started: ptr.To(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

// unscheduled returns a change to a pod that the scheduler refuses with a message.
func unscheduled(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		if message != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: "Unschedulable", Message: message}}
		}
	}
}

func requesting(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

func withVolume(v corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: v})
	}
}

func withClaim(name string) func(*corev1.Pod) {
	return withVolume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: name}})
}

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = controller(kind, name) }
}

func controller(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}}
}

// event returns an event about an object.
func event(kind, name, reason, message string, change ...func(*corev1.Event)) *corev1.Event {
	e := &corev1.Event{ObjectMeta: newMeta(name + "." + reason), Reason: reason, Message: message, Type: "Warning",
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: testNamespace, Name: name,
			UID: types.UID("uid-" + name)}, LastTimestamp: metav1.NewTime(time.Now())}
	for _, c := range change {
		c(e)
	}
	return e
}

func ofContainer(e *corev1.Event) { e.InvolvedObject.FieldPath = "spec.containers{app}" }

func newNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110")}
	for _, c := range change {
		c(n)
	}
	return n
}

func nodeIs(kind corev1.NodeConditionType, status corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: kind, Status: status, Message: message, Reason: "Reason"}}
		if kind != corev1.NodeReady {
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeReady, Status: "True"})
		}
	}
}

// newDeployment returns a Deployment with no available pod of two, and its set.
func newDeployment(name string) (*appsv1.Deployment, *appsv1.ReplicaSet) {
	d := &appsv1.Deployment{ObjectMeta: newMeta(name)}
	d.Spec.Replicas = ptr.To(int32(2))
	d.Status.ObservedGeneration = 1
	s := &appsv1.ReplicaSet{ObjectMeta: newMeta(name + "-1")}
	s.OwnerReferences = controller("Deployment", name)
	s.Spec.Replicas = ptr.To(int32(2))
	s.Status.ObservedGeneration = 1
	return d, s
}

func newClaim(name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: newMeta(name)}
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Status.Phase = corev1.ClaimPending
	return c
}

func newService(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: newMeta(name)}
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	for _, c := range change {
		c(s)
	}
	return s
}

func newSlice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: newMeta(service + "-x")}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// deleted marks an object as deleted an hour ago.
func deleted[P metav1.Object](object P, finalizers ...string) P {
	object.SetDeletionTimestamp(ptr.To(metav1.NewTime(time.Now().Add(-time.Hour))))
	object.SetFinalizers(finalizers)
	return object
}

func untyped(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range fields {
		u.Object[key] = value
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
