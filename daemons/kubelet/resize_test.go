package kubelet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/hollow"
)

func podCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// requestCPU changes the CPU request and limit of a pod's container.
func (n *node) requestCPU(name, cpu string) {
	n.t.Helper()
	p := n.pod(name).DeepCopy()
	p.Generation++
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	n.updatePod(p)
}

func (n *node) updatePod(p *corev1.Pod) {
	n.t.Helper()
	if _, err := n.client.CoreV1().Pods("default").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) hasCPU(name, cpu string) func() bool {
	return func() bool {
		p := n.pod(name)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].Resources == nil {
			return false
		}
		s := p.Status.ContainerStatuses[0]
		return s.Resources.Limits.Cpu().Cmp(resource.MustParse(cpu)) == 0 &&
			s.AllocatedResources.Cpu().Cmp(resource.MustParse(cpu)) == 0 &&
			podCondition(p, corev1.PodResizeInProgress) == nil &&
			podCondition(p, corev1.PodResizePending) == nil
	}
}

func (n *node) hasEvent(reason, part string) func() bool {
	return func() bool {
		list, err := n.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, part) {
				return true
			}
		}
		return false
	}
}

// Proves S23.
func TestPodsAreResizedInPlace(t *testing.T) {
	n := newNode(t)
	n.start()
	p := simplePod("web")
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
	n.create(p)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.until("the pod to run with one core", n.hasCPU("web", "1"))
	id := n.pod("web").Status.ContainerStatuses[0].ContainerID
	n.requestCPU("web", "2")
	n.until("the pod to run with two cores", n.hasCPU("web", "2"))
	n.until("the event of its begin", n.hasEvent("ResizeStarted", `Pod resize started: {"containers":[{"name":"main"`))
	n.until("the event of its end", n.hasEvent("ResizeCompleted", "Pod resize completed: "))
	if s := n.pod("web").Status.ContainerStatuses[0]; s.ContainerID != id || s.RestartCount != 0 {
		t.Errorf("the container was recreated: %+v", s)
	}

	n.requestCPU("web", "5")
	infeasible := func() bool {
		c := podCondition(n.pod("web"), corev1.PodResizePending)
		return c != nil && c.Reason == corev1.PodReasonInfeasible &&
			c.Message == "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
	}
	n.until("the word that no node of this size has five", infeasible)
	n.until("the event", n.hasEvent("ResizeInfeasible", "Node didn't have enough capacity"))
	if s := n.pod("web").Status.ContainerStatuses[0]; s.AllocatedResources.Cpu().Value() != 2 {
		t.Errorf("allocated %v", s.AllocatedResources)
	}
	// After a restart, the kubelet grants no more than before.
	n.stop()
	n.start()
	n.until("the same word again", infeasible)
	n.requestCPU("web", "1")
	n.until("the pod to run with one core again", n.hasCPU("web", "1"))
}

// Proves S23.
func TestResizeWaitsForRoom(t *testing.T) {
	n := newNode(t)
	n.start()
	for name, cpu := range map[string]string{"web": "1", "other": "2"} {
		p := simplePod(name)
		l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: l, Limits: l}
		n.create(p)
		n.until("the pod to run", n.hasCPU(name, cpu))
	}
	n.until("the node to be known", func() bool {
		_, err := n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		return err == nil
	})
	n.requestCPU("web", "3")
	n.until("the resize to wait", func() bool {
		c := podCondition(n.pod("web"), corev1.PodResizePending)
		return c != nil && c.Reason == corev1.PodReasonDeferred &&
			c.Message == "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
	})
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "other",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the pod to have the other's place", n.hasCPU("web", "3"))
}

func TestFailedResizesAreReportedAndRetried(t *testing.T) {
	n := newNode(t)
	var works atomic.Bool
	n.runtime.Fail = func(call string) error {
		if call == "UpdateContainerResources" && !works.Load() {
			return errors.New("no such cgroup")
		}
		return nil
	}
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.requestCPU("web", "2")
	n.until("the word of the failure", func() bool {
		c := podCondition(n.pod("web"), corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError && c.Message == "no such cgroup"
	})
	works.Store(true)
	n.until("the next try", n.hasCPU("web", "2"))
}

// recordedCgroups records the limits of pods' cgroups.
type recordedCgroups struct {
	hollow.Cgroups
	mu     sync.Mutex
	limits map[string]cgroup.Limits
}

func (g *recordedCgroups) Parent(p *corev1.Pod) string { return p.Name }

func (g *recordedCgroups) Make(path string, l cgroup.Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.MemoryLimit == 0 {
		l.MemoryLimit = g.limits[path].MemoryLimit // a zero limit is not written
	}
	g.limits[path] = l
	return nil
}

func (g *recordedCgroups) limitsOf(path string) cgroup.Limits {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limits[path]
}

// requestPodResources changes the pod-level resources of a pod.
func (n *node) requestPodResources(name, cpu, memory string) {
	n.t.Helper()
	p := n.pod(name).DeepCopy()
	p.Generation++
	p.Spec.Resources = podLevelResources(cpu, memory)
	n.updatePod(p)
}

func podLevelResources(cpu, memory string) *corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
	return &corev1.ResourceRequirements{Requests: l, Limits: l}
}

// Proves S23.
func TestPodLevelResourcesAreResized(t *testing.T) {
	n := newNode(t)
	g := &recordedCgroups{limits: map[string]cgroup.Limits{}}
	n.options.Cgroups = g
	n.start()
	p := simplePod("web", "stress-ng", "--vm-bytes", "64M")
	p.Generation, p.Spec.Resources = 1, podLevelResources("1", "128Mi")
	n.create(p)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	id := n.pod("web").Status.ContainerStatuses[0].ContainerID
	contains := func(quota, memory int64, cpu string) func() bool {
		return func() bool {
			l, p := g.limitsOf("web"), n.pod("web")
			r := p.Status.Resources
			return l.CPUQuota == quota && l.MemoryLimit == memory && r != nil && r.Limits.Cpu().String() == cpu &&
				r.Limits.Memory().Value() == memory &&
				p.Status.AllocatedResources.Cpu().String() == cpu &&
				podCondition(p, corev1.PodResizeInProgress) == nil &&
				podCondition(p, corev1.PodResizePending) == nil
		}
	}
	n.until("the pod to have one core", contains(100000, 128<<20, "1"))
	n.requestPodResources("web", "2", "256Mi")
	n.until("the pod to have two cores", contains(200000, 256<<20, "2"))
	n.until("the event of its begin", n.hasEvent("ResizeStarted", `"resources":{"limits":{"cpu":"2"`))
	n.until("the event of its end", n.hasEvent("ResizeCompleted", "Pod resize completed: "))
	n.requestPodResources("web", "5", "256Mi")
	n.until("the word that the node has no five cores", func() bool {
		c := podCondition(n.pod("web"), corev1.PodResizePending)
		return c != nil && c.Reason == corev1.PodReasonInfeasible
	})
	// After a restart, the kubelet keeps the granted size.
	n.stop()
	n.start()
	n.until("the same word again", func() bool {
		return podCondition(n.pod("web"), corev1.PodResizePending) != nil && g.limitsOf("web").CPUQuota == 200000
	})
	n.requestPodResources("web", "1", "32Mi")
	n.until("the word that the pod uses more memory", func() bool {
		c := podCondition(n.pod("web"), corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError &&
			strings.Contains(c.Message, "attempting to set pod memory limit (33554432) below current usage")
	})
	if l := g.limitsOf("web"); l.MemoryLimit < 64<<20 {
		t.Errorf("the pod has a limit of %d bytes, and uses 64 MiB", l.MemoryLimit)
	}
	if s := n.pod("web").Status.ContainerStatuses[0]; s.ContainerID != id || s.RestartCount != 0 {
		t.Errorf("the container was recreated: %+v", s)
	}
}
