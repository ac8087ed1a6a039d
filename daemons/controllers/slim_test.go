package controllers

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podOf(kind string, i int) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:          fmt.Sprintf("p%d", i),
			Namespace:     "default",
			Labels:        map[string]string{"app": "a"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: kind, Name: "o", UID: "o", Controller: &yes},
			},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i), Volumes: []corev1.Volume{
			{
				Name: fmt.Sprintf("kube-api-access-%d", i),
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
					}}},
			},
			{
				Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
				},
			},
		}, Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			VolumeMounts: []corev1.VolumeMount{{Name: fmt.Sprintf("kube-api-access-%d", i), MountPath: "/m"}},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}},
		Status: corev1.PodStatus{
			Phase:  corev1.PodRunning,
			PodIP:  "10.0.0.1",
			PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{
				{
					Type:   corev1.PodScheduled,
					Status: corev1.ConditionTrue,
				}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ContainerID: fmt.Sprint(i), RestartCount: 2,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}},
		},
	}
}

func slimmed(t *testing.T, s *slimmer, o any) any {
	t.Helper()
	for range 2 { // an object may be passed in again
		var err error
		if o, err = s.slim(o); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestPodsOfOneOwnerShareEqualValues(t *testing.T) {
	s := newSlimmer()
	a, b := slimmed(t, s, podOf("ReplicaSet", 1)).(*corev1.Pod), slimmed(t, s, podOf("ReplicaSet", 2)).(*corev1.Pod)
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.OwnerReferences[0] != &b.OwnerReferences[0] ||
		&a.Status.ContainerStatuses[0] != &b.Status.ContainerStatuses[0] {
		t.Error("they share nothing")
	}
	if a.Name != "p1" || b.Name != "p2" || a.Spec.NodeName != "n1" || b.Spec.NodeName != "n2" {
		t.Errorf("%s on %s, %s on %s", a.Name, a.Spec.NodeName, b.Name, b.Spec.NodeName)
	}
	other := podOf("ReplicaSet", 3)
	other.Labels["app"], other.Spec.Containers[0].Ports[0].ContainerPort,
		other.Status.ContainerStatuses[0].RestartCount = "b", 81, 3
	if slimmed(t, s, other); a.Labels["app"] != "a" || a.Spec.Containers[0].Ports[0].ContainerPort != 80 ||
		a.Status.ContainerStatuses[0].RestartCount != 2 ||
		other.Labels["app"] != "b" ||
		other.Spec.Containers[0].Ports[0].ContainerPort != 81 ||
		other.Status.ContainerStatuses[0].RestartCount != 3 {
		t.Error("what differs is shared")
	}
}

// TestPodsOfOneOwnerAndZoneShareTheirLabels covers pods of several places that arrive alternately.
func TestPodsOfOneOwnerAndZoneShareTheirLabels(t *testing.T) {
	s := newSlimmer()
	var pods []*corev1.Pod
	for i := range 6 {
		p := podOf("ReplicaSet", i+1)
		p.Labels[corev1.LabelTopologyZone] = []string{"a", "b", "c"}[i%3]
		pods = append(pods, slimmed(t, s, p).(*corev1.Pod))
	}
	for i, p := range pods[:3] {
		if reflect.ValueOf(p.Labels).Pointer() != reflect.ValueOf(pods[i+3].Labels).Pointer() {
			t.Errorf("two pods in zone %s have each labels of their own", p.Labels[corev1.LabelTopologyZone])
		}
		if p.Labels[corev1.LabelTopologyZone] != []string{"a", "b", "c"}[i] {
			t.Errorf("pod %d has the labels %v", i, p.Labels)
		}
	}
}

func TestSlimmingKeepsTheFieldsThatControllersRead(t *testing.T) {
	p := slimmed(t, newSlimmer(), podOf("ReplicaSet", 1)).(*corev1.Pod)
	if len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "c" {
		t.Errorf("volumes %v", p.Spec.Volumes)
	}
	if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != corev1.PodReady {
		t.Errorf("conditions %v", p.Status.Conditions)
	}
	if c := p.Spec.Containers[0]; c.Name != "c" || len(c.Ports) != 1 || c.Resources.Requests.Cpu().Value() != 1 ||
		c.VolumeMounts != nil {
		t.Errorf("container %v", c)
	}
	// Whether containers still run is retained: the devices of an ended pod are in use until they stop.
	if c := p.Status.ContainerStatuses[0]; c.State.Running == nil || !c.State.Running.StartedAt.IsZero() {
		t.Errorf("a container that runs is %v", c.State)
	}
	if len(p.ManagedFields) > 0 || p.Status.PodIPs[0].IP != "10.0.0.1" || p.Status.Phase != corev1.PodRunning {
		t.Errorf("%v %v", p.ManagedFields, p.Status)
	}
	always := corev1.ContainerRestartPolicyAlways
	host := podOf("ReplicaSet", 1)
	host.Spec.HostNetwork, host.Spec.InitContainers = true, []corev1.Container{
		{
			Name:          "i",
			RestartPolicy: &always,
			Ports:         []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
	if h := slimmed(t, newSlimmer(), host).(*corev1.Pod); !h.Spec.HostNetwork || h.Labels["app"] != "a" ||
		*h.Spec.InitContainers[0].RestartPolicy != always ||
		h.Spec.InitContainers[0].Ports[0] != (corev1.ContainerPort{Name: "dns", ContainerPort: 53,
			Protocol: corev1.ProtocolUDP}) {
		t.Errorf("what policies' peers are made of: %v", h)
	}
	if all := slimmed(t, newSlimmer(), podOf("Job", 1)).(*corev1.Pod).Status.Conditions; len(all) != 2 {
		t.Errorf("a Job's rules may be about any condition; there are %v", all)
	}
}

func TestPodsThatControllersUpdateAreNotSlimmed(t *testing.T) {
	p := slimmed(t, newSlimmer(), podOf("StatefulSet", 1)).(*corev1.Pod)
	if len(p.Spec.Volumes) != 2 || len(p.Spec.Containers[0].VolumeMounts) != 1 || len(p.Status.Conditions) != 2 {
		t.Errorf("%v", p.Spec)
	}
}

func TestSlimmingKeepsTheDataOfBootstrapTokensOnly(t *testing.T) {
	for kind, kept := range map[corev1.SecretType]bool{corev1.SecretTypeBootstrapToken: true,
		corev1.SecretTypeOpaque: false} {
		o := slimmed(t, newSlimmer(),
			&corev1.Secret{Type: kind, Data: map[string][]byte{"a": []byte("b")}}).(*corev1.Secret)
		if (o.Data != nil) != kept {
			t.Errorf("%s: %v", kind, o.Data)
		}
	}
}

func nodeOf(i int, cpu string) *corev1.Node {
	amounts := func() corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("256Gi")}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("n%d", i),
			Labels: map[string]string{"zone": "a", "host": fmt.Sprintf("n%d", i)},
		},
		Status: corev1.NodeStatus{
			Capacity:    amounts(),
			Allocatable: amounts(),
			Images:      []corev1.ContainerImage{{Names: []string{"i"}}},
			Conditions: []corev1.NodeCondition{
				{
					Type:    corev1.NodeReady,
					Status:  corev1.ConditionTrue,
					Reason:  "KubeletReady",
					Message: fmt.Sprint("node ", i),
				}},
		},
	}
}

func TestEqualNodesShareValues(t *testing.T) {
	s := newSlimmer()
	a, b, c := slimmed(t, s, nodeOf(1, "32")).(*corev1.Node), slimmed(t, s, nodeOf(2, "32")).(*corev1.Node),
		slimmed(t, s, nodeOf(3, "64")).(*corev1.Node)
	of := func(list corev1.ResourceList) uintptr { return reflect.ValueOf(list).Pointer() }
	if of(a.Status.Capacity) != of(b.Status.Capacity) || of(a.Status.Capacity) != of(a.Status.Allocatable) {
		t.Error("they share nothing")
	}
	if a.Status.Capacity.Cpu().Value() != 32 || c.Status.Capacity.Cpu().Value() != 64 {
		t.Error("what differs is shared")
	}
	for i := range 2 * maxRecentValues { // more values than recentValues holds
		slimmed(t, s, nodeOf(i, fmt.Sprint(i)))
	}
	if d := slimmed(t, s, nodeOf(4, "32")).(*corev1.Node); d.Status.Capacity.Cpu().Value() != 32 ||
		a.Status.Capacity.Cpu().Value() != 32 {
		t.Error("amounts were mixed up")
	}
	if b.Labels["host"] != "n2" || b.Labels["zone"] != "a" || b.Status.Conditions[0].Message != "node 2" ||
		b.Status.Images != nil {
		t.Errorf("%v", b)
	}
}
