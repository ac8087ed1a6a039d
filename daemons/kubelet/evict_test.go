package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/housekeeping"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/nodeagent"
)

// fullDisk is a machine whose disk is full while the runtime has a container of a pod.
type fullDisk struct {
	hollowMachine
	pod         string
	exceeded    atomic.Bool  // the pod's data exceeds the disk
	isStuckFull atomic.Bool  // the disk stays full after the container was removed
	checks      atomic.Int32 // number of disk checks
}

func (m *fullDisk) Disk() (machine.Disk, error) {
	d := machine.Disk{Available: 90 << 30, Capacity: 100 << 30, InodesFree: 1 << 22, InodeCount: 1 << 22}
	m.checks.Add(1)
	if m.exceeded.Load() && (m.hasContainer() || m.isStuckFull.Load()) {
		d.Available = 1 << 30
	}
	return d, nil
}

func (m *fullDisk) hasContainer() bool {
	list, _ := m.runtime.ListContainers(context.Background(), nil) // the runtime is in memory and returns no error
	for _, c := range list {
		if c.Labels["io.kubernetes.pod.name"] == m.pod {
			return true
		}
	}
	return false
}

// newFullNode returns a node with a pod that fills the disk, and another pod with lower priority.
func newFullNode(t *testing.T, filling *corev1.Pod) (n *node, m *fullDisk, k *Kubelet) {
	n = newNode(t)
	m = &fullDisk{
		hollowMachine: hollowMachine{hollow.Machine{Name: "n1", Cores: 4, Bytes: 8 << 30}, n.runtime},
		pod:           filling.Name,
	}
	n.options.Machine = m
	k = n.newKubelet()
	for i := range k.tasks {
		k.tasks[i].Interval = 10 * time.Millisecond
	}
	n.runKubelet(k)
	n.create(filling)
	n.create(simplePod("web"))
	n.until("the other pod to be ready", func() bool { return isReady(n.pod("web")) })
	return n, m, k
}

func (n *node) checkNotEvicted(name string) {
	n.t.Helper()
	if p := n.pod(name); p == nil || p.Status.Phase != corev1.PodRunning {
		n.t.Errorf("pod %s went as well: %+v", name, p)
	}
}

// The containers of an evicted pod are removed with their data, so that no other pod is evicted for that data.
// Proves S26.
func TestOnlyThePodThatFillsTheDiskIsEvicted(t *testing.T) {
	hog, minimum := simplePod("hog"), int32(-1)
	hog.Spec.Priority = &minimum
	n, m, _ := newFullNode(t, hog)
	n.until("the pod that fills the disk to be ready", func() bool { return isReady(n.pod("hog")) })
	m.exceeded.Store(true)
	n.until("what it has written to go", func() bool { return !m.hasContainer() })
	if p := n.pod("hog"); p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" ||
		p.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("of the pod that went it is said %+v", p.Status)
	}
	n.checkNotEvicted("web")
}

// The runtime frees the data of containers some time after it has removed them.
func TestNoOtherPodIsEvictedWhileTheRuntimeFreesTheDisk(t *testing.T) {
	hog, minimum := simplePod("hog"), int32(-1)
	hog.Spec.Priority = &minimum
	n, m, _ := newFullNode(t, hog)
	n.until("the pod that fills the disk to be ready", func() bool { return isReady(n.pod("hog")) })
	m.isStuckFull.Store(true)
	m.exceeded.Store(true)
	n.until("its containers to go", func() bool { return !m.hasContainer() })
	seen := m.checks.Load()
	n.until("more looks at the disk", func() bool { return m.checks.Load() > seen+50 })
	n.checkNotEvicted("web")
	m.isStuckFull.Store(false)
	if logs := n.logFiles("hog", "main"); logs == nil {
		t.Error("there is no directory of the evicted pod's logs")
	}
}

// The data of ended pods is removed before any pod is evicted.
// Proves S26.
func TestEndedContainersAreRemovedBeforeAnyPodIsEvicted(t *testing.T) {
	job := simplePod("job")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	n, m, k := newFullNode(t, job)
	n.until("the pod that fills the disk to be ready", func() bool { return isReady(n.pod("job")) })
	n.runtime.Crash("job", "main", 0)
	n.until("it to have ended", func() bool { return n.pod("job").Status.Phase == corev1.PodSucceeded })
	n.until("housekeeping to see that its resources are released", func() bool {
		return slices.ContainsFunc(podRegistry{k}.Snapshot(), func(p housekeeping.Pod) bool {
			return p.Pod.Name == "job" && p.Pod.Status.Phase == corev1.PodSucceeded && p.Released
		})
	})
	m.exceeded.Store(true)
	n.until("what it has written to go", func() bool { return !m.hasContainer() })
	if s := n.pod("job").Status; s.Phase != corev1.PodSucceeded || s.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("of the pod that has ended it is said %+v", s)
	}
	n.checkNotEvicted("web")
}

// A node or the cluster needs critical pods to work. They are not evicted, however much they use.
// Proves S26.
func TestCriticalPodsAreNotEvicted(t *testing.T) {
	agent, priority := simplePod("agent"), int32(2000001000)
	agent.Spec.Priority = &priority
	n := newNode(t)
	m := &shortMachine{hollowMachine: hollowMachine{hollow.Machine{Name: "n1", Cores: 4}, &hollow.Runtime{}}}
	n.options.Machine = m
	k := n.newKubelet()
	k.tasks = nil
	n.runKubelet(k)
	n.create(agent)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("agent")) })
	m.memory.Store(true)
	evicted := func(w *worker) bool {
		w.inbox.mu.Lock()
		defer w.inbox.mu.Unlock()
		return w.inbox.evicted != nil
	}
	if k.housekeepers.evictor.Run(t.Context()); slices.ContainsFunc(k.pods.all(), evicted) {
		t.Error("a critical pod was evicted")
	}
}

// Without process IDs, the pod with the lowest priority goes, and among equals the one with the most processes. Memory
// does not count.
// Proves S02, S26.
func TestPodsAreEvictedForProcessIDs(t *testing.T) {
	n := newNode(t)
	m := &shortMachine{hollowMachine: hollowMachine{hollow.Machine{Name: "n1", Cores: 4}, &hollow.Runtime{}}}
	n.options.Machine = m
	k := n.newKubelet()
	k.tasks = nil
	k.file.EvictionHard = map[string]string{"pid.available": "10%"}
	n.runKubelet(k)
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	m.processes.Store(true)
	k.housekeepers.evictor.Run(t.Context())
	n.until("the pod to be evicted", func() bool { return n.pod("web").Status.Reason == "Evicted" })
	if got := n.pod("web").Status.Message; got != "The node was low on resource: pids. " {
		t.Errorf("the message is %q", got)
	}
}

// A node under pressure rejects pods that it would evict next, such as pods of DaemonSets, which tolerate its taints.
// Proves S02, S26.
func TestANodeUnderPressureRejectsPods(t *testing.T) {
	critical := int32(2000000000)
	memory := []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists}}
	for name, c := range map[string]struct {
		short  nodeagent.Pressures
		change func(*corev1.PodSpec)
		want   string
	}{
		"nothing is short": {nodeagent.Pressures{}, func(*corev1.PodSpec) {}, "[]"},
		"disk":             {nodeagent.Pressures{Disk: true}, func(*corev1.PodSpec) {}, "[DiskPressure]"},
		"disk, tolerated": {nodeagent.Pressures{Disk: true},
			func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
			"[DiskPressure]"},
		"disk and memory": {nodeagent.Pressures{Memory: true, Disk: true},
			func(s *corev1.PodSpec) { s.Tolerations = memory },
			"[MemoryPressure DiskPressure]"},
		"processes": {nodeagent.Pressures{PIDs: true}, func(*corev1.PodSpec) {}, "[PIDPressure]"},
		"a critical pod": {nodeagent.Pressures{Disk: true}, func(s *corev1.PodSpec) { s.Priority = &critical },
			"[]"},
		"memory": {nodeagent.Pressures{Memory: true}, func(*corev1.PodSpec) {}, "[MemoryPressure]"},
		"memory, tolerated": {nodeagent.Pressures{Memory: true}, func(s *corev1.PodSpec) { s.Tolerations = memory },
			"[]"},
		"memory, of which it has asked": {nodeagent.Pressures{Memory: true}, func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		}, "[]"},
	} {
		p := simplePod("web")
		c.change(&p.Spec)
		if got := fmt.Sprint(c.short.RejectingConditions(p)); got != c.want {
			t.Errorf("%s: turned away for %s, want %s", name, got, c.want)
		}
	}
	n := newNode(t)
	k := n.newKubelet()
	k.tasks = nil
	k.pressures.Update(nodeagent.Pressures{Disk: true}, time.Now())
	n.runKubelet(k)
	n.create(simplePod("web"))
	n.until("the pod to be turned away",
		func() bool { p := n.pod("web"); return p != nil && p.Status.Phase == corev1.PodFailed })
	if s := n.pod("web").Status; s.Reason != "Evicted" ||
		s.Message != "Pod was rejected: The node had condition: [DiskPressure]. " ||
		len(s.ContainerStatuses) > 0 {
		t.Errorf("of it is said %+v", s)
	}
}
