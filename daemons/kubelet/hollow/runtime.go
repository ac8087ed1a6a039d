// Package hollow is a simulated container runtime. Sandboxes have addresses, and containers run until they are stopped
// or their simulated work is done, but no process is started. A kubelet with this runtime is a hollow node: it behaves
// like a real node towards the API, needs no root privileges, and one process can run many.
package hollow

import (
	"context"
	"fmt"
	"net/netip"
	"sort"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

// Runtime is a simulated container runtime. The zero value is ready to use and assigns pod addresses from 10.88.0.0/16.
type Runtime struct {
	// Pods is the network of the sandboxes' addresses.
	Pods netip.Prefix
	// Exit returns after what time and with which code a container ends. If ok is false, it runs until it is stopped.
	// If Exit is nil, the commands `exit N`, `true`, `false` and `sleep N` do what they say, and all others run until
	// stopped.
	Exit func(c *runtime.ContainerConfig) (after time.Duration, code int32, ok bool)
	// IsFinite reports whether a container of a pod should end by itself, such as a Job's. Whatever its image and
	// command are, it then succeeds after FiniteFor, unless Exit knows its command. If IsFinite is nil, no
	// container ends by itself. IsFinite is called without locks.
	IsFinite func(podUID, name string) bool
	// Fail returns the error of a call that should fail, or nil. Fail may be nil.
	Fail func(call string) error

	mu         sync.Mutex
	lastID     int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*runtime.Image
	listeners  map[*eventListener]bool
	calls      map[string]int
	ended      uint64 // CPU time of ended containers, in nanoseconds
}

// FiniteFor is how long a container runs that ends by itself. It is long enough for clients to see it run.
const FiniteFor = time.Second

type sandbox struct {
	id      string
	config  *runtime.PodSandboxConfig
	created time.Time
	ready   bool
	ip      string
}

var _ cri.Service = (*Runtime)(nil)

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q not found", what, id)
}

// countCall counts a call. It returns an error if the call should fail.
func (r *Runtime) countCall(call string) error {
	r.mu.Lock()
	if r.calls == nil {
		r.calls = map[string]int{}
		r.sandboxes, r.containers = map[string]*sandbox{}, map[string]*container{}
		r.images, r.listeners = map[string]*runtime.Image{}, map[*eventListener]bool{}
	}
	r.calls[call]++
	fail := r.Fail
	r.mu.Unlock()
	if fail != nil {
		return fail(call)
	}
	return nil
}

// Calls returns how often a method was called.
func (r *Runtime) Calls(call string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[call]
}

func (r *Runtime) newID() string {
	r.lastID++
	return fmt.Sprintf("%064x", r.lastID)
}

// notify notifies the listeners that a pod has changed. The caller holds mu.
func (r *Runtime) notify(box *sandbox) {
	if box == nil {
		return
	}
	for l := range r.listeners {
		l.changed[box.config.GetMetadata().GetUid()] = true
		select {
		case l.wake <- struct{}{}:
		default: // the listener has not yet handled the previous wake-up
		}
	}
}

// Close implements cri.Service.
func (r *Runtime) Close() error { return nil }

// Version implements cri.Runtime.
func (r *Runtime) Version(context.Context) (*runtime.VersionResponse, error) {
	if err := r.countCall("Version"); err != nil {
		return nil, err
	}
	return &runtime.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       "hollow",
		RuntimeVersion:    "1.0.0",
		RuntimeApiVersion: "v1",
	}, nil
}

// Status implements cri.Runtime.
func (r *Runtime) Status(context.Context) (*runtime.StatusResponse, error) {
	if err := r.countCall("Status"); err != nil {
		return nil, err
	}
	return &runtime.StatusResponse{
		Status: &runtime.RuntimeStatus{
			Conditions: []*runtime.RuntimeCondition{
				{Type: "RuntimeReady", Status: true},
				{Type: "NetworkReady", Status: true},
			},
		},
		RuntimeHandlers: []*runtime.RuntimeHandler{{Features: &runtime.RuntimeHandlerFeatures{}}},
		Features:        &runtime.RuntimeFeatures{},
	}, nil
}

// RecursiveReadOnly implements cri.Runtime. It returns false, because nothing is mounted.
func (r *Runtime) RecursiveReadOnly(context.Context, string) (bool, error) { return false, nil }

// RunPodSandbox implements cri.Runtime.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtime.PodSandboxConfig, _ string) (string, error) {
	if err := r.countCall("RunPodSandbox"); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	box := &sandbox{id: r.newID(), config: config, created: time.Now(), ready: true}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtime.NamespaceMode_NODE {
		pods := r.Pods
		if !pods.IsValid() {
			pods = netip.MustParsePrefix("10.88.0.0/16")
		}
		ip := pods.Masked().Addr()
		for range r.lastID%60000 + 1 {
			ip = ip.Next()
		}
		box.ip = ip.String()
	}
	r.sandboxes[box.id] = box
	r.notify(box)
	return box.id, nil
}

// StopPodSandbox implements cri.Runtime.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	if err := r.countCall("StopPodSandbox"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[id]
	if box == nil {
		return nil
	}
	for _, c := range r.containers {
		if c.sandbox == id {
			r.endContainer(c, 137, "Error")
		}
	}
	box.ready = false
	r.notify(box)
	return nil
}

// RemovePodSandbox implements cri.Runtime.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.countCall("RemovePodSandbox"); err != nil {
		return err
	}
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for cid, c := range r.containers {
		if c.sandbox == id {
			delete(r.containers, cid)
		}
	}
	delete(r.sandboxes, id)
	return nil
}

// PodSandboxStatus implements cri.Runtime.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string) (*runtime.PodSandboxStatus, error) {
	if err := r.countCall("PodSandboxStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[id]
	if box == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtime.PodSandboxStatus{
		Id: id, Metadata: box.config.Metadata, State: box.state(), CreatedAt: box.created.UnixNano(),
		Network: &runtime.PodSandboxNetworkStatus{
			Ip: box.ip,
		}, Labels: box.config.Labels, Annotations: box.config.Annotations,
		Linux: &runtime.LinuxPodSandboxStatus{
			Namespaces: &runtime.Namespace{Options: box.config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}, nil
}

func (b *sandbox) state() runtime.PodSandboxState {
	if b.ready {
		return runtime.PodSandboxState_SANDBOX_READY
	}
	return runtime.PodSandboxState_SANDBOX_NOTREADY
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// ListPodSandbox implements cri.Runtime.
func (r *Runtime) ListPodSandbox(_ context.Context, f *runtime.PodSandboxFilter) ([]*runtime.PodSandbox, error) {
	if err := r.countCall("ListPodSandbox"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.PodSandbox
	for _, b := range r.sandboxes {
		if matches(b.config.Labels, f.GetLabelSelector()) && (f.GetState() == nil || f.State.State == b.state()) {
			list = append(
				list,
				&runtime.PodSandbox{
					Id:          b.id,
					Metadata:    b.config.Metadata,
					State:       b.state(),
					CreatedAt:   b.created.UnixNano(),
					Labels:      b.config.Labels,
					Annotations: b.config.Annotations,
				},
			)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Id < list[j].Id })
	return list, nil
}
