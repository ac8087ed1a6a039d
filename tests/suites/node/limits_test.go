package node

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Proves S25.
func TestContainersOverTheirMemoryLimitAreKilledAlone(t *testing.T) {
	n := startNode(t)
	limit := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	n.createPod(n.newShellPod("neighbour", "sleep 1000",
		func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = limit }))
	n.createPod(n.newShellPod("hog", "x=0123456789abcdef; while true; do x=$x$x; done", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Resources.Limits = limit
	}))
	n.waitFor("the hog's end",
		func() bool { p := n.getPod("hog"); return p != nil && p.Status.Phase == corev1.PodFailed })
	if s := n.getPod("hog").Status.ContainerStatuses[0].State.Terminated; s == nil || s.Reason != "OOMKilled" ||
		s.ExitCode != 137 {
		t.Errorf("the hog: %+v", s)
	}
	n.waitFor("the neighbour", func() bool { return isReady(n.getPod("neighbour")) })
	if n.getPod("neighbour").Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the neighbour was restarted")
	}
}

// Proves S23, S24.
func TestSecurityContextsAndNamespacesAreApplied(t *testing.T) {
	n := startNode(t)
	yes, user, group := true, int64(1234), int64(2345)
	n.createPod(n.newShellPod("locked", "id -u; id -g; touch /x 2>&1; sleep 1000", func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			RunAsUser:              &user,
			RunAsGroup:             &group,
			RunAsNonRoot:           &yes,
			ReadOnlyRootFilesystem: &yes,
			SeccompProfile:         &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	}))
	n.createPod(n.newShellPod("host", "ip addr show lo; hostname; cat /etc/resolv.conf; sleep 1000",
		func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	n.createPod(n.newShellPod("shared", "sleep 1234", func(p *corev1.Pod) {
		p.Spec.ShareProcessNamespace = &yes
		other := p.Spec.Containers[0]
		other.Name, other.Command = "other", []string{
			"sh",
			"-c",
			"sleep 1; ps; wget -q -O - http://127.0.0.1:9/ 2>&1; sleep 1000",
		}
		p.Spec.Containers = append(p.Spec.Containers, other)
	}))
	n.waitFor("the pods", func() bool {
		return isReady(n.getPod("locked")) && isReady(n.getPod("host")) && isReady(n.getPod("shared"))
	})
	n.waitFor("the locked pod's log",
		func() bool { return strings.Count(n.logOf("locked", corev1.PodLogOptions{}), "\n") >= 3 })
	if got := n.logOf("locked", corev1.PodLogOptions{}); !strings.HasPrefix(got, "1234\n2345\n") ||
		!strings.Contains(got, "Read-only file system") {
		t.Errorf("locked: %s", got)
	}
	if p := n.getPod("host"); p.Status.PodIP != "127.0.0.1" {
		t.Errorf("the pod on the host's network has address %s", p.Status.PodIP)
	}
	n.waitFor("the other container to see the first", func() bool {
		return strings.Contains(n.logOf("shared", corev1.PodLogOptions{Container: "other"}), "sleep 1234")
	})
}

// Proves S23.
func TestDeletionIsGraceful(t *testing.T) {
	n := startNode(t)
	grace := int64(60) // longer than waitFor waits
	n.createPod(
		n.newShellPod(
			"polite",
			"trap 'echo stopping; exit 0' TERM; echo up; while true; do sleep 0.1; done",
			func(p *corev1.Pod) {
				p.Spec.TerminationGracePeriodSeconds = &grace
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
					PreStop: &corev1.LifecycleHandler{
						Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo before >/proc/1/fd/1"}},
					},
					PostStart: &corev1.LifecycleHandler{
						Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo after start >/proc/1/fd/1"}},
					},
				}
			},
		),
	)
	n.waitFor("the pod", func() bool { return isReady(n.getPod("polite")) })
	stream, err := n.admin.CoreV1().Pods("default").GetLogs("polite", &corev1.PodLogOptions{Follow: true}).
		Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	n.deletePod("polite")
	logs, err := io.ReadAll(stream) // until the container ends
	if err != nil {
		t.Error(err)
	}
	n.waitFor("its end", func() bool { return n.getPod("polite") == nil })
	for _, want := range []string{"up\n", "after start\n", "before\n", "stopping\n"} {
		if !strings.Contains(string(logs), want) {
			t.Errorf("the log lacks %q: %q", want, logs)
		}
	}
}

// Proves S06.
func TestNodesRejectPodsThatDoNotFit(t *testing.T) {
	n := startNode(t)
	n.createPod(n.newShellPod("huge", "sleep 1", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	}))
	n.waitFor("the refusal", func() bool {
		p := n.getPod("huge")
		return p != nil &&
			p.Status.Phase == corev1.PodFailed
	})
	if s := n.getPod("huge").Status; s.Reason != "OutOfcpu" || !strings.Contains(s.Message, "requested: 1000000") {
		t.Errorf("refused for %s: %s", s.Reason, s.Message)
	}
}

// Proves S23, S33.
func TestUsageIsReported(t *testing.T) {
	n := startNode(t)
	n.createPod(n.newShellPod("busy", "while true; do :; done", nil))
	n.waitFor("the pod", func() bool { return isReady(n.getPod("busy")) })
	n.waitFor("its use of CPU", func() bool {
		data, err := n.admin.CoreV1().
			RESTClient().
			Get().
			Resource("nodes").
			Name(fmt.Sprintf("%s:10250", nodeName)).
			SubResource("proxy", "metrics", "resource").
			DoRaw(t.Context())
		return err == nil &&
			strings.Contains(string(data),
				`container_cpu_usage_seconds_total{container="main",namespace="default",pod="busy"}`)
	})
}

// Proves S23.
func TestPodIsResizedInPlace(t *testing.T) {
	n := startNode(t)
	size := func(cpu, memory string) corev1.ResourceRequirements {
		l := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory),
		}
		return corev1.ResourceRequirements{Requests: l, Limits: l}
	}
	const look = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
	n.createPod(n.newShellPod("web", "while true; do "+look+"; sleep 0.2; done", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = size("100m", "64Mi")
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{
				ResourceName:  corev1.ResourceCPU,
				RestartPolicy: corev1.RestartContainer,
			}, {ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.NotRequired}}
	}))
	n.waitFor("the pod", func() bool { return isReady(n.getPod("web")) })
	id := n.getPod("web").Status.ContainerStatuses[0].ContainerID
	resize := func(cpu, memory string) {
		t.Helper()
		p := n.getPod("web").DeepCopy()
		p.Spec.Containers[0].Resources = size(cpu, memory)
		if _, err := n.admin.CoreV1().Pods("default").UpdateResize(t.Context(), "web", p,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.waitFor("the pod to be resized", func() bool {
			s := n.getPod("web").Status
			for _, c := range s.Conditions {
				if c.Type == corev1.PodResizeInProgress || c.Type == corev1.PodResizePending {
					return false
				}
			}
			r := s.ContainerStatuses[0].Resources
			return s.ContainerStatuses[0].State.Running != nil &&
				r.Limits.Memory().Cmp(resource.MustParse(memory)) == 0 &&
				r.Limits.Cpu().Cmp(resource.MustParse(cpu)) == 0
		})
	}
	for _, memory := range []string{"128Mi", "48Mi"} {
		resize("100m", memory)
		want := resource.MustParse(memory)
		n.waitFor("the container to see its new limit", func() bool {
			return strings.Contains(n.logOf("web", corev1.PodLogOptions{}), fmt.Sprintf("%d\n", want.Value()))
		})
	}
	if s := n.getPod("web").Status.ContainerStatuses[0]; s.ContainerID != id || s.RestartCount != 0 {
		t.Errorf("the container was recreated: %+v", s)
	}
	resize("200m", "48Mi")
	if s := n.getPod("web").Status.ContainerStatuses[0]; s.ContainerID == id || s.RestartCount != 1 {
		t.Errorf("the container was not recreated for more CPU: %+v", s)
	}
}

// Proves S26.
func TestPodsOverTheirEphemeralStorageLimitAreEvicted(t *testing.T) {
	n := startNode(t)
	n.createPod(n.newShellPod("full", "dd if=/dev/zero of=/big bs=1M count=16; sleep 1000", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceEphemeralStorage: resource.MustParse("4Mi"),
		}
	}))
	n.waitFor("its end", func() bool { p := n.getPod("full"); return p != nil && p.Status.Phase == corev1.PodFailed })
	if s := n.getPod("full").Status; s.Reason != "Evicted" ||
		s.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. " {
		t.Errorf("it ended for %s: %s", s.Reason, s.Message)
	}
	n.waitFor("what it has written to go", func() bool {
		list, err := n.cri.ListContainers(context.Background(),
			&criapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": "full"}})
		return err == nil && len(list) == 0
	})
	if s := n.getPod("full").Status; s.Reason != "Evicted" || s.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("of the pod, whose containers are gone, it is said %+v", s)
	}
}
