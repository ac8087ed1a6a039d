package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/hollow"
)

type hollowRuntime = hollow.Runtime

// writingRuntime is a runtime whose containers have written data to their file systems.
type writingRuntime struct {
	*hollowRuntime
	bytes uint64
}

func (r writingRuntime) ListPodSandboxStats(ctx context.Context) ([]*criapi.PodSandboxStats, error) {
	list, err := r.hollowRuntime.ListPodSandboxStats(ctx)
	for _, s := range list {
		for _, c := range s.GetLinux().GetContainers() {
			c.WritableLayer = &criapi.FilesystemUsage{UsedBytes: &criapi.UInt64Value{Value: r.bytes}}
		}
	}
	return list, err
}

// Proves S26.
func TestPodsThatExceedTheirStorageLimitAreEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		layer uint64
		grow  func(n *node)
	}{
		"its own file system": {4 << 20, func(*node) {}},
		"its log": {0, func(n *node) {
			n.writeFile(filepath.Join(n.options.LogRoot, "default_web_uid-web", "main", "0.log.old"))
		}},
		"its hosts": {0, func(n *node) { n.writeFile(filepath.Join(n.cfg.RootDir, "pods", "uid-web", "etc-hosts")) }},
		"its last words": {0, func(n *node) {
			n.writeFile(filepath.Join(n.cfg.RootDir, "pods", "uid-web", "containers",
				"main", "0"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.options.Runtime = writingRuntime{n.runtime, c.layer}
			k := n.newKubelet()
			for i := range k.tasks {
				k.tasks[i].Interval = time.Millisecond
			}
			n.runKubelet(k)
			p := simplePod("web")
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceEphemeralStorage: resource.MustParse("3Mi"),
			}
			n.create(p)
			n.until("the pod to run",
				func() bool { p := n.pod("web"); return p.Status.Phase != "" && p.Status.Phase != corev1.PodPending })
			c.grow(n)
			n.until("the pod to be evicted", func() bool {
				s := n.pod("web").Status
				return s.Phase == corev1.PodFailed && s.Reason == "Evicted" && strings.Contains(s.Message, "3Mi")
			})
		})
	}
}

// Reading statistics is expensive, so the runtime is only asked if a pod has a limit.
func TestStatisticsAreReadOnlyForPodsWithLimits(t *testing.T) {
	for _, limited := range []bool{false, true} {
		n := newNode(t)
		k := n.newKubelet()
		var looks atomic.Int32
		for i := range k.tasks {
			if c := &k.tasks[i]; c.Name == "limits of storage" {
				do := c.Run
				c.Interval, c.Run = time.Millisecond, func(ctx context.Context) { do(ctx); looks.Add(1) }
			}
		}
		n.runKubelet(k)
		p := simplePod("web")
		if limited {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceEphemeralStorage: resource.MustParse("3Mi"),
			}
		}
		n.create(p)
		n.until("the pod to run", func() bool { return isReady(n.pod("web")) })
		started := looks.Load()
		n.until("more looks at what pods store", func() bool { return looks.Load() > started+2 })
		if calls := n.runtime.Calls("ListPodSandboxStats"); limited != (calls > 0) {
			t.Errorf("with limits %t: the runtime was asked %d times", limited, calls)
		}
	}
}

// writeFile writes a file of 4 MiB.
func (n *node) writeFile(path string) {
	n.t.Helper()
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// Proves S23.
func TestRejectedEphemeralContainersDoNotFailThePod(t *testing.T) {
	n := newNode(t)
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	p := n.pod("web").DeepCopy()
	unmasked := corev1.UnmaskedProcMount
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "look", Image: "busybox:1", SecurityContext: &corev1.SecurityContext{ProcMount: &unmasked}}}}
	n.updatePod(p)
	n.until("the event", n.hasEvent("UserNamespacesNotSupported", "container look"))
	n.until("the container to say why it does not start", func() bool {
		s := n.pod("web").Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(s[0].State.Waiting.Message, "Unmasked")
	})
	if !isReady(n.pod("web")) {
		t.Error("the pod is not ready any more")
	}
}
