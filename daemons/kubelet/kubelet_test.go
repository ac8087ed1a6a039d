package kubelet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	k8stesting "k8s.io/client-go/testing"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes/fake"
)

// node is a hollow node under test with a fake API client.
type node struct {
	t       *testing.T
	client  *fake.Clientset
	runtime *hollow.Runtime
	cfg     config.Kubelet
	file    config.KubeletFile
	options Options
	stop    func()
	done    chan error
}

func newNode(t *testing.T, objects ...runtime.Object) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, client: fake.NewClientset(objects...)}
	// The fake client does not assign UIDs.
	n.client.PrependReactor("create", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if m, ok := a.(k8stesting.CreateAction).GetObject().(metav1.Object); ok && m.GetUID() == "" {
			m.SetUID(uuid.NewUUID())
		}
		return false, nil, nil
	})
	// The fake client deletes at once. The API server waits for the kubelet's delete request without a grace period.
	n.client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		d := a.(k8stesting.DeleteActionImpl)
		if s := d.DeleteOptions.GracePeriodSeconds; s != nil && *s == 0 {
			return false, nil, nil
		}
		p, err := n.client.Tracker().Get(d.GetResource(), d.GetNamespace(), d.GetName())
		if err != nil {
			return true, nil, err
		}
		p = p.DeepCopyObject()
		now, grace := metav1.Now(), int64(30)
		if s := d.DeleteOptions.GracePeriodSeconds; s != nil {
			grace = *s
		}
		p.(*corev1.Pod).DeletionTimestamp, p.(*corev1.Pod).DeletionGracePeriodSeconds = &now, &grace
		return true, p, n.client.Tracker().Update(d.GetResource(), p, d.GetNamespace())
	})
	n.cfg, n.file = config.DefaultKubelet(), config.DefaultKubeletFile()
	n.cfg.RootDir, n.cfg.HostnameOverride, n.cfg.NodeIP = filepath.Join(dir, "kubelet"), "n1", []string{"10.0.0.1"}
	n.file.StaticPodPath = filepath.Join(dir, "manifests")
	n.file.ResolverConfig = ""
	n.options = Hollow("n1", 4, 8<<30, netip.MustParsePrefix("10.88.0.0/16"), filepath.Join(dir, "log", "pods"))
	n.options.Client = n.client
	n.runtime = n.options.Runtime.(*hollow.Runtime)
	return n
}

func (n *node) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.done = make(chan error, 1)
	env := run.NewEnv(slog.New(slog.NewTextHandler(testOutput{n.t}, &slog.HandlerOptions{Level: slog.LevelDebug})))
	go func() { n.done <- RunWith(ctx, n.cfg, n.file, env, n.options) }()
	n.stop = func() {
		cancel()
		if err := <-n.done; err != nil {
			n.t.Errorf("kubelet ended with %v", err)
		}
		n.stop = func() {}
	}
	n.t.Cleanup(func() { n.stop() })
}

type testOutput struct{ t *testing.T }

func (o testOutput) Write(b []byte) (int, error) { o.t.Log(string(b)); return len(b), nil }

var _ io.Writer = testOutput{}

// until waits until ok returns true.
func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			n.t.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
}

func (n *node) pod(name string) *corev1.Pod {
	p, err := n.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (n *node) create(p *corev1.Pod) {
	n.t.Helper()
	if _, err := n.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func isReady(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func simplePod(name string, command ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{
			Name: "main", Image: "busybox:1", Command: command, TerminationMessagePath: "/dev/termination-log",
		}}},
	}
}

// Proves S23.
func TestPodRunsAndIsRemoved(t *testing.T) {
	n := newNode(t)
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	p := n.pod("web")
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP != "10.0.0.1" {
		t.Errorf("status is %+v", p.Status)
	}
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "web",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the pod to go", func() bool { return n.pod("web") == nil })
	if boxes, _ := n.runtime.ListPodSandbox(context.Background(), nil); len(boxes) != 0 {
		t.Errorf("%d sandboxes are left", len(boxes))
	}
	n.until("the pod's directory to go", func() bool {
		_, err := os.Stat(filepath.Join(n.cfg.RootDir, "pods", "uid-web"))
		return os.IsNotExist(err)
	})
}

// Proves S01, S02, S03.
func TestNodeIsRegisteredWithLease(t *testing.T) {
	n := newNode(t)
	n.cfg.NodeLabels = map[string]string{"zone": "a"}
	n.file.RegisterWithTaints = []config.Taint{{Key: "k", Effect: "NoSchedule"}}
	n.start()
	var got *corev1.Node
	n.until("the node to be ready", func() bool {
		var err error
		got, err = n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue && c.Reason == "KubeletReady"
			}
		}
		return false
	})
	if got.Labels["zone"] != "a" || got.Labels[corev1.LabelHostname] != "n1" || len(got.Spec.Taints) != 1 {
		t.Errorf("node is %+v", got.ObjectMeta)
	}
	if got.Status.Capacity.Cpu().Value() != 4 || got.Status.Allocatable.Memory().Value() != 8<<30-100<<20 {
		t.Errorf("capacity %v allocatable %v", got.Status.Capacity, got.Status.Allocatable)
	}
	n.until("the lease", func() bool {
		l, err := n.client.CoordinationV1().
			Leases("kube-node-lease").
			Get(context.Background(), "n1", metav1.GetOptions{})
		return err == nil && *l.Spec.HolderIdentity == "n1" && l.Spec.RenewTime != nil
	})
}

// Proves S01.
func TestTakenNodeNameIsRejected(t *testing.T) {
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	other.Status.NodeInfo.MachineID = "someone-else"
	n := newNode(t, other)
	now := metav1.NewMicroTime(time.Now())
	if _, err := n.client.CoordinationV1().Leases("kube-node-lease").Create(context.Background(), newLease("n1", now),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := RunWith(context.Background(), n.cfg, n.file, run.NewEnv(slog.New(slog.DiscardHandler)), n.options)
	if err == nil || err.Error()[:21] != `node name "n1" is tak` {
		t.Errorf("got %v", err)
	}
}

// Proves S01.
func TestManuallyCreatedNodeIsAdopted(t *testing.T) {
	n := newNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"mine": "yes"}}})
	n.start()
	n.until("the node to be adopted", func() bool {
		got, err := n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		return err == nil && got.Labels["mine"] == "yes" && got.Labels[corev1.LabelHostname] == "n1" &&
			got.Status.Capacity.Cpu().Value() == 4
	})
}

// Proves S23.
func TestRestartOfKubeletRestartsNoPod(t *testing.T) {
	n := newNode(t)
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	before := n.pod("web").Status.ContainerStatuses[0].ContainerID
	n.stop()
	n.start()
	lists := n.runtime.Calls("ListContainers")
	n.until("the new kubelet to look", func() bool { return n.runtime.Calls("ListContainers") > lists+1 })
	n.runtime.Crash("web", "main", 1)
	n.until("the crash to be seen", func() bool { return n.pod("web").Status.ContainerStatuses[0].RestartCount == 1 })
	if n.runtime.Calls("RunPodSandbox") != 1 || n.runtime.Calls("CreateContainer") != 2 {
		t.Errorf("%d sandboxes and %d containers were made", n.runtime.Calls("RunPodSandbox"),
			n.runtime.Calls("CreateContainer"))
	}
	if last := n.pod("web").Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
		last.ContainerID != before ||
		last.ExitCode != 1 {
		t.Errorf("last state is %+v", last)
	}
}

// Proves S05.
func TestPodDeletedWhileTheKubeletWasDownIsCleanedUp(t *testing.T) {
	n := newNode(t)
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.stop()
	zero := int64(0)
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "web",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	n.start()
	n.until("the sandbox to go", func() bool {
		boxes, _ := n.runtime.ListPodSandbox(context.Background(), nil)
		return len(boxes) == 0
	})
}

// Proves S23.
func TestStaticPodIsMirrored(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.file.StaticPodPath, 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: default}\nspec: {containers: [{name: " +
		"main, image: 'etcd:1'}]}\n"
	path := filepath.Join(n.file.StaticPodPath, "etcd.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.until("the mirror to be ready", func() bool { return isReady(n.pod("etcd-n1")) })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.until("the mirror to go", func() bool { return n.pod("etcd-n1") == nil })
	n.until("the sandbox to go", func() bool {
		boxes, _ := n.runtime.ListPodSandbox(context.Background(), nil)
		return len(boxes) == 0
	})
}

// A static pod ends when its manifest is deleted. It stays while the manifest or the directory cannot be read.
// Proves S23.
func TestStaticPodsStayWhileTheirManifestsCannotBeRead(t *testing.T) {
	for name, hide := range map[string]func(n *node, path string) error{
		"the directory is not there": func(n *node,
			_ string) error {
			return os.Rename(n.file.StaticPodPath, n.file.StaticPodPath+".away")
		},
		"the file makes no sense": func(_ *node, path string) error { return os.WriteFile(path, []byte("{"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if err := os.MkdirAll(n.file.StaticPodPath, 0o755); err != nil {
				t.Fatal(err)
			}
			manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: default}\nspec: {containers: " +
				"[{name: main, image: 'etcd:1'}]}\n"
			path := filepath.Join(n.file.StaticPodPath, "etcd.yaml")
			if err := os.WriteFile(path, []byte(manifest), 0o644); err != nil {
				t.Fatal(err)
			}
			n.start()
			n.until("the mirror to be ready", func() bool { return isReady(n.pod("etcd-n1")) })
			boxes := func() string {
				list, err := n.runtime.ListPodSandbox(context.Background(), nil)
				if err != nil || len(list) != 1 {
					t.Fatalf("%d sandboxes, %v", len(list), err)
				}
				return list[0].Id
			}
			before := boxes()
			n.stop()
			if err := hide(n, path); err != nil {
				t.Fatal(err)
			}
			n.start()
			n.create(simplePod("web"))
			n.until("another pod to be ready", func() bool { return isReady(n.pod("web")) })
			list, err := n.runtime.ListPodSandbox(context.Background(), nil)
			if err != nil || !slices.ContainsFunc(list, func(b *criapi.PodSandbox) bool { return b.Id == before }) {
				t.Errorf("the static pod's sandbox is gone: %v, %v", list, err)
			}
		})
	}
}

// Proves S23.
func TestFinishedPodKeepsItsLog(t *testing.T) {
	n := newNode(t)
	n.start()
	p := simplePod("job", "exit", "3")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	n.create(p)
	n.until("the pod to fail", func() bool { p := n.pod("job"); return p != nil && p.Status.Phase == corev1.PodFailed })
	s := n.pod("job").Status.ContainerStatuses[0].State.Terminated
	if s == nil || s.ExitCode != 3 || s.Reason != "Error" {
		t.Errorf("state is %+v", s)
	}
}

// lateRuntime is a runtime that takes long to deliver events.
type lateRuntime struct {
	*hollow.Runtime
	listening chan struct{}
}

func (r lateRuntime) Events(ctx context.Context, seen func(string)) error {
	select {
	case <-r.listening:
		return r.Runtime.Events(ctx, seen)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Proves S23.
func TestAnEndIsSeenBeforeTheRuntimeReportsIt(t *testing.T) {
	n := newNode(t)
	listens := make(chan struct{})
	n.options.Runtime = lateRuntime{n.runtime, listens}
	n.start()
	n.create(simplePod("web"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	n.runtime.Crash("web", "main", 1)
	close(listens)
	n.until("the crash to be seen", func() bool { return n.pod("web").Status.ContainerStatuses[0].RestartCount == 1 })
}

// Pods at rest cause no calls to the runtime. Only the node's status does.
func TestIdlePodsAreNotPolled(t *testing.T) {
	n := newNode(t)
	n.file.NodeStatusUpdateFrequency.Duration = 5 * time.Millisecond
	n.start()
	const count = 100
	for i := range count {
		n.create(simplePod(fmt.Sprintf("idle-%d", i)))
	}
	n.until("the pods to be ready", func() bool {
		list, err := n.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range list.Items {
			if !isReady(&list.Items[i]) {
				return false
			}
		}
		return len(list.Items) == count
	})
	requests := -1
	n.until("the last events to be taken in", func() bool {
		before := n.runtime.Calls("Status")
		old := n.runtime.Calls("ContainerStatus")
		n.until("status rounds", func() bool { return n.runtime.Calls("Status") > before+5 })
		requests = n.runtime.Calls("ContainerStatus")
		return requests == old
	})
	before := n.runtime.Calls("Status")
	n.until("more status rounds", func() bool { return n.runtime.Calls("Status") > before+20 })
	if now := n.runtime.Calls("ContainerStatus"); now != requests {
		t.Errorf("%d pods at rest were asked about %d times", count, now-requests)
	}
}

// A hanging runtime call for one pod does not block other pods.
// Proves S23.
func TestAHungPodDoesNotBlockOthers(t *testing.T) {
	n := newNode(t)
	release := make(chan struct{})
	var first atomic.Bool
	n.runtime.Fail = func(call string) error {
		if call == "RunPodSandbox" && first.CompareAndSwap(false, true) {
			<-release
		}
		return nil
	}
	defer close(release)
	n.start()
	n.create(simplePod("hung"))
	n.until("the first pod to hang", first.Load)
	n.create(simplePod("free"))
	n.until("the other pod to be ready", func() bool { return isReady(n.pod("free")) })
	if isReady(n.pod("hung")) {
		t.Error("the hung pod is ready")
	}
	release <- struct{}{}
	n.until("the hung pod to go on", func() bool { return isReady(n.pod("hung")) })
}

// Resources that other components add to a node's capacity, such as devices, stay in the status.
// Proves S15.
func TestExtendedResourcesInTheStatusAreKept(t *testing.T) {
	k := newNode(t).newKubelet()
	status := k.agent.MeasureStatus(t.Context(), &corev1.NodeStatus{Capacity: corev1.ResourceList{
		"example.com/foo": resource.MustParse(
			"3"), "hugepages-1Gi": resource.MustParse("1Gi"), "cpu": resource.MustParse("77")}})
	if foo := status.Capacity["example.com/foo"]; foo.Value() != 3 || status.Capacity.Cpu().Value() != 4 {
		t.Errorf("capacity %v", status.Capacity)
	}
	if _, exists := status.Capacity["hugepages-1Gi"]; exists {
		t.Errorf("the machine's own resources are what it has: %v", status.Capacity)
	}
	if foo := status.Allocatable["example.com/foo"]; foo.Value() != 3 {
		t.Errorf("allocatable of foo is %v", foo)
	}
}
