package device

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"
)

// fakeDriver is a driver with a socket for both registration and preparation.
type fakeDriver struct {
	drav1.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	name     string
	versions []string
	health   healthv1.DRAResourceHealthServer // nil: it does not report health

	mu         sync.Mutex
	failing    bool
	prepared   map[string]bool // by UID
	calls      []string
	registered *registration.RegistrationStatus
}

func (d *fakeDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: d.name, SupportedVersions: d.versions}, nil
}

func (d *fakeDriver) NotifyRegistrationStatus(
	_ context.Context,
	s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered = s
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *fakeDriver) NodePrepareResources(
	_ context.Context,
	r *drav1.NodePrepareResourcesRequest,
) (*drav1.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, "prepare "+c.Name)
		if d.failing {
			out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Error: "no power"}
			continue
		}
		d.prepared[c.Uid] = true
		out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Devices: []*drav1.Device{
			{
				RequestNames: []string{"gpu"},
				PoolName:     "n",
				DeviceName:   "d0",
				CdiDeviceIds: []string{"example.com/gpu=" + c.Name},
			},
			{
				RequestNames: []string{"nic/fast"},
				PoolName:     "n",
				DeviceName:   "d1",
				CdiDeviceIds: []string{"example.com/nic=0"},
			}}}
	}
	return out, nil
}

func (d *fakeDriver) NodeUnprepareResources(
	_ context.Context,
	r *drav1.NodeUnprepareResourcesRequest,
) (*drav1.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, "unprepare "+c.Name)
		delete(d.prepared, c.Uid)
		out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

func (d *fakeDriver) withLock(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// serve makes the driver listen on a socket in a directory until stop is called.
func (d *fakeDriver) serve(t *testing.T, dir string) (stop func()) {
	t.Helper()
	d.prepared = map[string]bool{}
	listener, err := net.Listen("unix", filepath.Join(dir, d.name+"-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	drav1.RegisterDRAPluginServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	if d.health != nil {
		healthv1.RegisterDRAResourceHealthServer(server, d.health)
		v1alpha1.RegisterDRAResourceHealthServer(server, healthv1.V1ServerWrapper{Server: d.health})
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	return func() {
		server.Stop()
		done.Wait()
	}
}

// newManager returns a manager with a running registry.
func newManager(t *testing.T, dir string, claims ...*resourcev1.ResourceClaim) *Manager {
	t.Helper()
	sockets := filepath.Join(dir, "plugins_registry")
	r := &Registry{Dir: sockets, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	m := &Manager{
		Dir:     dir,
		Plugins: r,
		Health:  r.Health,
		ReadClaim: func(_ context.Context, _, name string) (*resourcev1.ResourceClaim, error) {
			for _, c := range claims {
				if c.Name == name {
					return c, nil
				}
			}
			return nil, errors.New("not found")
		},
	}
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	return m
}

// shortDir returns a directory with a short name, because the length of socket paths is limited.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func newClaim(name string, users ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: "uid-of-the-claim"}}
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: "gpu.example.com", Pool: "n", Device: "d0"}}},
	}
	for _, u := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: u, UID: types.UID("uid-of-" + u)})
	}
	return c
}

func newPod(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "mine", ResourceClaimName: ptr.To(claim)}},
		}}
}

func TestClaimsArePreparedOnceAndUnpreparedAfterTheLastPod(t *testing.T) {
	dir := shortDir(t)
	sockets := filepath.Join(dir, "plugins_registry")
	if err := os.MkdirAll(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	claim := newClaim("c", "a", "b")
	m := newManager(t, dir, claim)
	a, b, stranger := newPod("a", "c"), newPod("b", "c"), newPod("x", "c")
	ctx := t.Context()
	if err := m.Prepare(ctx, a); err == nil ||
		firstLine(err) != "driver gpu.example.com: DRA driver gpu.example.com is not registered on this node" {
		t.Fatalf("without a driver: %v", err)
	}
	d := &fakeDriver{name: "gpu.example.com", versions: []string{drav1.DRAPluginService}, failing: true}
	defer d.serve(t, sockets)()
	eventually(t, "the registration to be reported to the driver", func() (reported bool) {
		d.withLock(func() { reported = d.registered != nil && d.registered.PluginRegistered })
		return reported && m.Plugins.(*Registry).Has(d.name)
	})
	if err := m.Prepare(ctx, a); err == nil || firstLine(err) != "driver gpu.example.com: claim d/c: no power" {
		t.Fatalf("a driver that fails: %v", err)
	}
	d.withLock(func() { d.failing = false })
	for _, p := range []*corev1.Pod{a, b, a} {
		if err := m.Prepare(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Prepare(ctx, stranger); err == nil {
		t.Error("a pod that the claim is not reserved for has it prepared")
	}
	d.withLock(func() {
		if want := []string{"prepare c", "prepare c"}; !slices.Equal(d.calls, want) {
			t.Errorf("calls are %v", d.calls)
		}
	})
	for _, c := range []struct {
		takes []corev1.ResourceClaim
		want  []string
	}{
		{nil, nil},
		{[]corev1.ResourceClaim{{Name: "mine"}}, []string{"example.com/gpu=c", "example.com/nic=0"}},
		{[]corev1.ResourceClaim{{Name: "mine", Request: "gpu"}}, []string{"example.com/gpu=c"}},
		{[]corev1.ResourceClaim{{Name: "mine", Request: "nic"}, {Name: "mine"}},
			[]string{"example.com/nic=0", "example.com/gpu=c"}},
		{[]corev1.ResourceClaim{{Name: "other"}}, nil},
	} {
		if got := m.IDs(b, &corev1.Container{Resources: corev1.ResourceRequirements{Claims: c.takes}}); !slices.Equal(
			got,
			c.want,
		) {
			t.Errorf("%v gives %v", c.takes, got)
		}
	}
	next := restart(t, m, dir, a)
	for _, p := range []*corev1.Pod{a, a, b} {
		if err := next.Unprepare(ctx, p.UID); err != nil {
			t.Fatal(err)
		}
	}
	d.withLock(func() {
		if want := []string{"prepare c", "prepare c", "unprepare c"}; !slices.Equal(d.calls, want) ||
			len(d.prepared) > 0 {
			t.Errorf("calls are %v, prepared is %v", d.calls, d.prepared)
		}
	})
	if left := next.Pods(); len(next.claims) > 0 {
		t.Errorf("%v are left: %v", next.claims, left)
	}
}

// restart returns a new manager, which reads what the previous one has prepared for a pod.
func restart(t *testing.T, m *Manager, dir string, pod *corev1.Pod) *Manager {
	next := &Manager{
		Dir:     dir,
		Plugins: m.Plugins,
		ReadClaim: func(context.Context, string, string) (*resourcev1.ResourceClaim, error) {
			return nil, errors.New("not asked")
		},
	}
	if err := next.Load(); err != nil {
		t.Fatal(err)
	}
	if err := next.Prepare(t.Context(), pod); err != nil {
		t.Errorf("prepare a prepared claim: %v", err)
	}
	if got := next.IDs(pod, &corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{
		Name: "mine", Request: "gpu"}}}}); !slices.Equal(got, []string{"example.com/gpu=c"}) {
		t.Errorf("after a restart: %v", got)
	}
	return next
}

func TestAClaimForExtendedResourcesIsPreparedForItsContainers(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a", UID: "uid-of-a"}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "c",
		RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "gpu"}},
	}
	claim := newClaim("c", "a")
	m := newManager(t, t.TempDir(), claim)
	m.Plugins = okDriver{}
	if err := m.Prepare(t.Context(), p); err == nil || !strings.Contains(err.Error(), "Pod is not owner") {
		t.Fatalf("a claim of another pod: %v", err)
	}
	claim.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")),
	}
	if m.isPrepared(p) {
		t.Error("the pod is ready before its claim is prepared")
	}
	if err := m.Prepare(t.Context(), p); err != nil || !m.isPrepared(p) {
		t.Fatalf("%v, ready: %v", err, m.isPrepared(p))
	}
	asks := corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}
	for _, c := range []struct {
		container corev1.Container
		want      []string
	}{
		{corev1.Container{Name: "main", Resources: asks}, []string{"example.com/gpu=c"}},
		{corev1.Container{Name: "main"}, nil},
		{corev1.Container{Name: "other", Resources: asks}, nil},
	} {
		if got := m.IDs(p, &c.container); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v", c.container, got)
		}
	}
	if err := m.Unprepare(t.Context(), p.UID); err != nil || len(m.Pods()) > 0 {
		t.Errorf("%v, left: %v", err, m.Pods())
	}
}

// okDriver is a driver that prepares every claim.
type okDriver struct{}

func (okDriver) Prepare(
	_ context.Context,
	_ string,
	claims []Claim,
) (map[types.UID][]Device, map[types.UID]error, error) {
	out := map[types.UID][]Device{}
	for _, c := range claims {
		out[c.UID] = []Device{{Requests: []string{"gpu"}, CDI: []string{"example.com/gpu=" + c.Name}}}
	}
	return out, nil, nil
}
func (okDriver) Unprepare(context.Context, string, Claim) error { return nil }

func TestADriverWithUnknownVersionsIsRejected(t *testing.T) {
	dir := shortDir(t)
	sockets := filepath.Join(dir, "plugins_registry")
	if err := os.MkdirAll(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	m := newManager(t, dir)
	d := &fakeDriver{name: "new.example.com", versions: []string{"v7.DRAPlugin"}}
	defer d.serve(t, sockets)()
	eventually(t, "the driver to be told that it is not registered", func() (reported bool) {
		d.withLock(func() {
			reported = d.registered != nil && !d.registered.PluginRegistered &&
				d.registered.Error != ""
		})
		return reported
	})
	if m.Plugins.(*Registry).Has(d.name) {
		t.Error("it is registered all the same")
	}
}
