package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/volume"
	"clusterctl/daemons/run"
)

// newKubelet returns the kubelet of a node under test without running it.
func (n *node) newKubelet() *Kubelet {
	n.t.Helper()
	k, err := newKubelet(n.cfg, n.file, run.NewEnv(slog.New(slog.NewTextHandler(testOutput{n.t}, nil))), n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	return k
}

// runKubelet runs a kubelet until the test ends.
func (n *node) runKubelet(k *Kubelet) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.run(ctx, n.options) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("kubelet ended with %v", err)
		}
	})
}

// sandboxOf returns the configuration of a pod's first sandbox.
func (n *node) sandboxOf(k *Kubelet, p *corev1.Pod) *criapi.PodSandboxConfig {
	n.t.Helper()
	box, err := stepRunner{k}.sandboxConfig(p, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return box
}

// hangingMounter is a Mounter on which the volumes of one pod hang, as with a dead file server.
type hangingMounter struct {
	volume.Plain
	pod     string
	hanging atomic.Bool
	end     chan struct{}
}

func (h *hangingMounter) UnmountAll(dir string) error {
	if filepath.Base(dir) == h.pod {
		h.hanging.Store(true)
		<-h.end
	}
	return nil
}

// shortMachine is a machine that is short of memory if memory is set, and of process IDs if processes is set.
type shortMachine struct {
	hollowMachine
	memory, processes atomic.Bool
}

func (m *shortMachine) Processes() (used, capacity int64, err error) {
	if m.processes.Load() {
		return 32760, 32768, nil
	}
	return 100, 32768, nil
}

func (m *shortMachine) Memory() (available, capacity int64, err error) {
	if m.memory.Load() {
		return 1 << 20, 8 << 30, nil
	}
	return 8 << 30, 8 << 30, nil
}

// Proves S23, S26.
func TestAHungUnmountBlocksNeitherEvictionNorCleanup(t *testing.T) {
	n := newNode(t)
	h := &hangingMounter{pod: "a-hangs", end: make(chan struct{})}
	defer close(h.end)
	m := &shortMachine{hollowMachine: hollowMachine{hollow.Machine{Name: "n1", Cores: 4}, &hollow.Runtime{}}}
	n.options.Mounter, n.options.Machine = h, m
	left := func(uid string) string { return filepath.Join(n.cfg.RootDir, "pods", uid) }
	logs := filepath.Join(n.options.LogRoot, "d_p_gone")
	for _, dir := range []string{left("a-hangs"), left("b-goes"), logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := n.newKubelet()
	for i := range k.tasks {
		k.tasks[i].Interval = time.Millisecond
	}
	n.runKubelet(k)
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.until("the unmount to hang", h.hanging.Load)
	m.memory.Store(true)
	n.until("the pod to be evicted", func() bool {
		p := n.pod("web")
		return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
	})
	for _, dir := range []string{left("b-goes"), logs} {
		n.until(dir+" to go", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
	}
}

// The choice of the pod to evict depends on the pods' usage. While the runtime does not report it, no pod is evicted.
// Proves S26.
func TestNoPodIsEvictedWithoutUsageStatistics(t *testing.T) {
	n := newNode(t)
	m := &shortMachine{hollowMachine: hollowMachine{hollow.Machine{Name: "n1", Cores: 4}, &hollow.Runtime{}}}
	n.options.Machine = m
	var silent atomic.Bool
	n.runtime.Fail = func(call string) error {
		if silent.Load() && call == "ListPodSandboxStats" {
			return errors.New("busy")
		}
		return nil
	}
	k := n.newKubelet()
	k.tasks = nil
	n.runKubelet(k)
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	evicted := func() bool {
		k.pods.mu.Lock()
		defer k.pods.mu.Unlock()
		w := k.pods.workers["uid-web"]
		w.inbox.mu.Lock()
		defer w.inbox.mu.Unlock()
		return w.inbox.evicted != nil
	}
	m.memory.Store(true)
	silent.Store(true)
	if k.housekeepers.evictor.Run(t.Context()); evicted() {
		t.Error("a pod was chosen by nothing")
	}
	silent.Store(false)
	if k.housekeepers.evictor.Run(t.Context()); !evicted() {
		t.Error("no pod is evicted where it is known what they use")
	}
}

// listingCgroups is a Cgroups whose Pods lists the cgroup of a pod just before the pod starts.
type listingCgroups struct {
	hollow.Cgroups
	begin   func()
	removed chan string
}

func (l *listingCgroups) Pods() (map[string]string, error) {
	l.begin()
	return map[string]string{"uid-web": "/kubepods/poduid-web", "gone": "/kubepods/podgone"}, nil
}

func (l *listingCgroups) Remove(path string) error {
	l.removed <- path
	return nil
}

// Proves S23.
func TestAPodThatStartsDuringTheOrphanSweepSurvives(t *testing.T) {
	n := newNode(t)
	l := &listingCgroups{removed: make(chan string, 8)}
	n.options.Cgroups = l
	k := n.newKubelet()
	k.tasks = nil
	l.begin = func() { k.updateWorker(simplePod("web"), nil) }
	n.runKubelet(k)
	n.until("the pods to be known", func() bool {
		_, ok := k.knownPods()
		return ok
	})
	k.housekeepers.sweeper.Cgroups(context.Background())
	close(l.removed)
	for path := range l.removed {
		if strings.Contains(path, "uid-web") {
			t.Error("the group of a pod that has just begun was removed")
		}
	}
	l.removed = make(chan string, 64)
}

// Proves S05.
func TestOrphanedSandboxIsFoundWhileTheKubeletRuns(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	for i := range k.tasks {
		k.tasks[i].Interval = time.Millisecond
	}
	left := func(uid string) {
		t.Helper()
		if _, err := n.runtime.RunPodSandbox(context.Background(), n.sandboxOf(k, simplePod(uid)), ""); err != nil {
			t.Fatal(err)
		}
	}
	alone := func() bool {
		boxes, err := n.runtime.ListPodSandbox(context.Background(), nil)
		return err == nil && len(boxes) == 1
	}
	left("before")
	n.runKubelet(k)
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.until("the sandbox of before to go, by the look that every kubelet takes when it begins", alone)
	left("stray")
	n.until("the stray sandbox to go", alone)
	if !isReady(n.pod("web")) {
		t.Error("the pod that is wanted is not ready")
	}
}

// Before all sources of pods have been read, an unknown pod is not an orphan.
// Proves S05.
func TestNoOrphanIsRemovedBeforeAllPodsAreListed(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.file.StaticPodPath, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.file.StaticPodPath, "etcd.yaml"), []byte("half wri"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := n.newKubelet()
	k.tasks = nil
	stray := simplePod("stray")
	if _, err := n.runtime.RunPodSandbox(context.Background(), n.sandboxOf(k, stray), ""); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(n.cfg.RootDir, "pods", "stray")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.runKubelet(k)
	<-k.synced
	k.housekeepers.sweeper.Volumes(context.Background())
	k.adoptOrphans(context.Background(), nil)
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if _, ok := k.knownPods(); ok {
		t.Error("the pods are said to be known")
	}
	if boxes, _ := n.runtime.ListPodSandbox(context.Background(), nil); len(boxes) != 1 ||
		n.runtime.Calls("StopPodSandbox") != 0 {
		t.Error("a sandbox was stopped that may be a static pod's")
	}
}

// Proves S26.
func TestPodThatExceedsItsVolumeLimitIsEvicted(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	for i := range k.tasks {
		k.tasks[i].Interval = time.Millisecond
	}
	n.runKubelet(k)
	p, limit := simplePod("web"), resource.MustParse("64Ki")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}},
	}
	n.create(p)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	dir := filepath.Join(n.cfg.RootDir, "pods", "uid-web", "volumes", "kubernetes.io~empty-dir", "v")
	if err := os.WriteFile(filepath.Join(dir, "much"), make([]byte, 128<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	n.until("the pod to be evicted", func() bool {
		p := n.pod("web")
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" &&
			p.Status.Message == `Usage of EmptyDir volume "v" exceeds the limit "64Ki". `
	})
}

// Proves S23.
func TestUnsupportedPodIsRejectedWithAnEvent(t *testing.T) {
	n := newNode(t)
	n.start()
	p, no := simplePod("web"), false
	p.Spec.HostUsers = &no
	n.create(p)
	n.until("the pod to fail", func() bool {
		p := n.pod("web")
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "UserNamespacesNotSupported"
	})
	n.until("the event", func() bool {
		events, err := n.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "UserNamespacesNotSupported" && strings.Contains(e.Message, "hostUsers")
		})
	})
	if n.runtime.Calls("RunPodSandbox") != 0 {
		t.Error("a sandbox was made")
	}
}

// weighedCgroups is a Cgroups that records the last CPU shares of the Burstable class.
type weighedCgroups struct {
	hollow.Cgroups
	shares atomic.Int64
}

func (w *weighedCgroups) SetBurstableShares(shares int64) error {
	w.shares.Store(shares)
	return nil
}

// Proves S25.
func TestBurstableSharesFollowTheRunningPods(t *testing.T) {
	n := newNode(t)
	w := &weighedCgroups{}
	n.options.Cgroups = w
	k := n.newKubelet()
	for i := range k.tasks {
		k.tasks[i].Interval = time.Millisecond
	}
	n.runKubelet(k)
	for _, name := range []string{"a", "b"} {
		p := simplePod(name)
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		n.create(p)
	}
	n.until("the class to have what both request", func() bool { return w.shares.Load() == 1024 })
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the class to have what is left", func() bool { return w.shares.Load() == 512 })
}
