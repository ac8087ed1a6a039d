// Package nodeagent registers the node in the API, reports its status and its pressures, and renews its lease.
package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/sleep"
	"clusterctl/kube/kubernetes"
)

// callTimeout limits one request to the API.
const callTimeout = 15 * time.Second

// Runtime is what the agent needs of the container runtime.
type Runtime interface {
	Version(ctx context.Context) (*criapi.VersionResponse, error)
	Status(ctx context.Context) (*criapi.StatusResponse, error)
	ListImages(ctx context.Context) ([]*criapi.Image, error)
}

// Config is what an Agent needs. All fields without a comment are required.
type Config struct {
	Name          string
	IPs           []string
	Labels        map[string]string // may be nil
	File          *config.KubeletFile
	Client        kubernetes.Interface
	Runtime       Runtime
	Machine       machine.Machine
	Pressures     *Monitor
	Log           *slog.Logger
	LeaseRenewals interface{ Inc() }
	// NoLease leaves out the node's lease.
	NoLease bool
	// Simulated nodes record fewer events.
	Simulated bool
	// Cached returns the node from a watch. Nil means that the agent reads it from the API.
	Cached func() (*corev1.Node, error)
	// Registered, if set, is called once the node is registered.
	Registered func(ctx context.Context)
}

// Agent represents this machine as a Node in the API.
type Agent struct {
	Config

	events record.EventRecorder

	mu   sync.Mutex
	node *corev1.Node // as last read or written

	lastCordoned bool // last state of spec.unschedulable that an event reported; owned by the status loop
}

// Run creates this machine's Node, then updates its status and renews its lease until ctx ends. It records events with
// recorder. Apart from the end of ctx, it returns an error only if the node's name belongs to another machine.
func (a *Agent) Run(ctx context.Context, recorder record.EventRecorder) error {
	a.events = recorder
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 7*time.Second) {
		node, err := a.ensureNode(ctx)
		if err == nil {
			a.SetNode(node)
			break
		}
		var taken *nameTakenError
		if errors.As(err, &taken) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Log.Warn("register the node", "node", a.Name, "error", err)
		if !sleep.For(ctx, delay) {
			return ctx.Err()
		}
	}
	a.Log.Info("node registered", "node", a.Name, "addresses", a.IPs)
	if !a.Simulated {
		a.recordNodeEvent(nodeEvent{corev1.EventTypeNormal, "Starting", "Starting kubelet."})
		a.recordNodeEvent(
			nodeEvent{corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"},
		)
	}
	if a.Registered != nil {
		a.Registered(ctx)
	}
	var leased sync.WaitGroup
	if !a.NoLease {
		leased.Go(func() { a.runLeaseLoop(ctx) })
	}
	a.runStatusLoop(ctx)
	leased.Wait()
	return ctx.Err()
}

// nameTakenError reports that another machine uses this node's name.
type nameTakenError struct{ name, ours, theirs string }

func (e *nameTakenError) Error() string {
	return fmt.Sprintf("node name %q is taken by another machine that is alive (its machine id is %s, this one's is "+
		"%s): give this machine another name with --hostname-override, or delete the node when that machine is gone",
		e.name, e.theirs, e.ours)
}

// ensureNode creates the Node, or adopts an existing one.
func (a *Agent) ensureNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := a.Client.CoreV1().Nodes()
	current, err := nodes.Get(ctx, a.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node := a.newNode(ctx)
		created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		if err == nil {
			// The API server ignores the status in a create request.
			created.Status.Conditions, created.Status.Capacity = nil, nil
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create node %s: %w", a.Name, err)
		}
		current, err = nodes.Get(ctx, a.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", a.Name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("read node %s: %w", a.Name, err)
	}
	ours, theirs := a.Machine.Info().MachineID, current.Status.NodeInfo.MachineID
	if theirs != "" && ours != "" && theirs != ours && a.isAlive(ctx, current) {
		return nil, &nameTakenError{a.Name, ours, theirs}
	}
	// The kubelet owns the labels that describe the machine, whichever client created the Node.
	labels := map[string]string{}
	for name, value := range a.configuredLabels() {
		if current.Labels[name] != value {
			labels[name] = value
		}
	}
	if len(labels) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return nil, err
		}
		if current, err = nodes.Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("label node %s: %w", a.Name, err)
		}
	}
	return current, nil
}

// isAlive reports whether the machine of a Node renews its lease.
func (a *Agent) isAlive(ctx context.Context, node *corev1.Node) bool {
	lease, err := a.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil || lease.Spec.RenewTime == nil {
		return false
	}
	return time.Since(lease.Spec.RenewTime.Time) < time.Duration(a.File.NodeLeaseDurationSeconds)*time.Second
}

func (a *Agent) newNode(ctx context.Context) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Labels: a.configuredLabels()}}
	for _, t := range a.File.RegisterWithTaints {
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	node.Status = a.MeasureStatus(ctx, &corev1.NodeStatus{})
	return node
}

func (a *Agent) configuredLabels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: a.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, a.Labels)
	return labels
}

// SetNode records the node as read or written.
func (a *Agent) SetNode(n *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = n
}

// Node returns the node as last read or written, or nil before it is registered.
func (a *Agent) Node() *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}
