package controllers

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// encodedPod returns the encoded pod of an owner with a kubelet's status.
//
//style:long one literal, with the fields of a pod that a kubelet runs
func encodedPod(b *testing.B, owner string, i int) []byte {
	b.Helper()
	yes, now := true, metav1.NewTime(time.Unix(1800000000, 0))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s-%05d", owner, i),
			GenerateName:      owner + "-",
			Namespace:         "default",
			ResourceVersion:   fmt.Sprint(i),
			UID:               types.UID(fmt.Sprintf("%036d", i)),
			CreationTimestamp: now,
			Labels:            map[string]string{"app": owner},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(strings.Repeat("x", 1500))}},
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: &yes},
			},
		},
		Spec: corev1.PodSpec{
			NodeName:                      fmt.Sprintf("node-%d", i%5000),
			ServiceAccountName:            "default",
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64),
			SchedulerName:                 "default-scheduler",
			Priority:                      new(int32),
			SecurityContext:               &corev1.PodSecurityContext{},
			Tolerations: []corev1.Toleration{
				{
					Key:               corev1.TaintNodeNotReady,
					Operator:          corev1.TolerationOpExists,
					Effect:            corev1.TaintEffectNoExecute,
					TolerationSeconds: new(int64),
				},
				{
					Key:               corev1.TaintNodeUnreachable,
					Operator:          corev1.TolerationOpExists,
					Effect:            corev1.TaintEffectNoExecute,
					TolerationSeconds: new(int64),
				}},
			Volumes: []corev1.Volume{
				{
					Name: fmt.Sprintf("kube-api-access-%05d", i),
					VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
						Sources: []corev1.VolumeProjection{
							{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
						}}},
				},
			},
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/pause:1",
				VolumeMounts: []corev1.VolumeMount{
					{Name: fmt.Sprintf("kube-api-access-%05d", i), MountPath: "/var/run/secrets"},
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						"cpu":    resource.MustParse("100m"),
						"memory": resource.MustParse("64Mi"),
					},
				}}},
		},
		Status: corev1.PodStatus{
			Phase:     corev1.PodRunning,
			HostIP:    "192.0.2.9",
			PodIP:     "10.1.2.3",
			PodIPs:    []corev1.PodIP{{IP: "10.1.2.3"}},
			StartTime: &now,
			QOSClass:  corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", Image: "registry.invalid/pause:1", Ready: true, Started: &yes,
					ContainerID: fmt.Sprintf("containerd://%064d",
						i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}},
			},
		},
	}
	for _, t := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady",
		"PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	data, err := p.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkSlim measures slimming a decoded pod, and decoding alone for comparison.
func BenchmarkSlim(b *testing.B) {
	sent := make([][]byte, 1000)
	for i := range sent {
		sent[i] = encodedPod(b, fmt.Sprintf("set-%d", i%10), i)
	}
	for name, slim := range map[string]func(any) (any, error){"slim": newSlimmer().slim,
		"read": func(o any) (any, error) { return o, nil }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := &corev1.Pod{}
				if err := p.Unmarshal(sent[i%len(sent)]); err != nil {
					b.Fatal(err)
				}
				if _, err := slim(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCachedPods measures the memory of 50,000 slimmed pods: live bytes, and the bytes of the pages that they
// occupy.
func BenchmarkCachedPods(b *testing.B) {
	measureMemory(b, 50000, func(i int) []byte { return encodedPod(b, fmt.Sprintf("set-%d", i/100), i) },
		func() unmarshaler { return &corev1.Pod{} })
}

// BenchmarkCachedNodes measures the same for 5,000 nodes.
func BenchmarkCachedNodes(b *testing.B) {
	measureMemory(b, 5000, func(i int) []byte { return encodedNode(b, i) },
		func() unmarshaler { return &corev1.Node{} })
}

type unmarshaler interface{ Unmarshal(data []byte) error }

func measureMemory(b *testing.B, n int, send func(i int) []byte, object func() unmarshaler) {
	b.Helper()
	sent := make([][]byte, n)
	for i := range sent {
		sent[i] = send(i)
	}
	for b.Loop() {
		s, held := newSlimmer(), make([]any, n)
		debug.FreeOSMemory()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range held {
			o := object()
			if err := o.Unmarshal(sent[i]); err != nil {
				b.Fatal(err)
			}
			held[i], _ = s.slim(o)
		}
		for i := range held { // a starting cache passes the objects of its initial list a second time
			held[i], _ = s.slim(held[i])
		}
		debug.FreeOSMemory()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "live-B/object")
		b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/float64(n), "pages-B/object")
		runtime.KeepAlive(held)
		runtime.KeepAlive(s)
		runtime.KeepAlive(sent)
	}
}

// encodedNode returns an encoded node with a kubelet's status.
func encodedNode(b *testing.B, i int) []byte {
	b.Helper()
	name, now := fmt.Sprintf("node-%d", i), metav1.NewTime(time.Unix(1800000000, 0))
	amounts := corev1.ResourceList{
		"cpu":               resource.MustParse("32"),
		"memory":            resource.MustParse("256Gi"),
		"pods":              resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("1Ti"),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID(fmt.Sprintf("%036d", i)),
			ResourceVersion:   fmt.Sprint(i),
			CreationTimestamp: now,
			Labels: map[string]string{
				corev1.LabelHostname:     name,
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   "amd64",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    amounts,
			Allocatable: amounts,
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}},
		},
	}
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting " +
			"ready status"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	data, err := n.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return data
}
