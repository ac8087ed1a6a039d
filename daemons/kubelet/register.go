package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"clusterctl/daemons/kubelet/sleep"
)

// register creates this machine's Node, then updates its status and renews its lease until ctx ends. Apart from the end
// of ctx, it returns an error only if the node's name belongs to another machine.
func (k *Kubelet) register(ctx context.Context) error {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 7*time.Second) {
		node, err := k.ensureNode(ctx)
		if err == nil {
			k.setNode(node)
			break
		}
		var taken *nameTakenError
		if errors.As(err, &taken) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.env.Log.Warn("register the node", "node", k.name, "error", err)
		if !sleep.For(ctx, delay) {
			return ctx.Err()
		}
	}
	k.env.Log.Info("node registered", "node", k.name, "addresses", k.ips)
	if !k.simulated {
		k.recordNodeEvent(nodeEvent{corev1.EventTypeNormal, "Starting", "Starting kubelet."})
		k.recordNodeEvent(
			nodeEvent{corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"},
		)
	}
	k.mirrors.sync(ctx, k.nodeOwner())
	var leased sync.WaitGroup
	if !k.hasNoLease {
		leased.Go(func() { k.runLeaseLoop(ctx) })
	}
	k.runStatusLoop(ctx)
	leased.Wait()
	return ctx.Err()
}

// nameTakenError reports that another machine uses this node's name.
type nameTakenError struct{ name, ours, theirs string }

func (e *nameTakenError) Error() string {
	return fmt.Sprintf(
		"node name %q is taken by another machine that is alive (its machine id is %s, this one's is %s): "+
			"give this machine another name with --hostname-override, or delete the node when that machine is gone",
		e.name,
		e.theirs,
		e.ours,
	)
}

// ensureNode creates the Node, or adopts an existing one.
func (k *Kubelet) ensureNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := k.client.CoreV1().Nodes()
	have, err := nodes.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node := k.newNode(ctx)
		created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		if err == nil {
			// The API server ignores the status in a create request.
			created.Status.Conditions, created.Status.Capacity = nil, nil
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create node %s: %w", k.name, err)
		}
		have, err = nodes.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", k.name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("read node %s: %w", k.name, err)
	}
	ours, theirs := k.machine.Info().MachineID, have.Status.NodeInfo.MachineID
	if theirs != "" && ours != "" && theirs != ours && k.isAlive(ctx, have) {
		return nil, &nameTakenError{k.name, ours, theirs}
	}
	// The kubelet owns the labels that describe the machine, whichever client created the Node.
	labels := map[string]string{}
	for name, value := range k.configuredLabels() {
		if have.Labels[name] != value {
			labels[name] = value
		}
	}
	if len(labels) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return nil, err
		}
		if have, err = nodes.Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("label node %s: %w", k.name, err)
		}
	}
	return have, nil
}

// isAlive reports whether the machine of a Node renews its lease.
func (k *Kubelet) isAlive(ctx context.Context, node *corev1.Node) bool {
	lease, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil || lease.Spec.RenewTime == nil {
		return false
	}
	return time.Since(lease.Spec.RenewTime.Time) < time.Duration(k.file.NodeLeaseDurationSeconds)*time.Second
}

func (k *Kubelet) newNode(ctx context.Context) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: k.configuredLabels()}}
	for _, t := range k.file.RegisterWithTaints {
		node.Spec.Taints = append(
			node.Spec.Taints,
			corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)},
		)
	}
	node.Status = k.measureStatus(ctx, &corev1.NodeStatus{})
	return node
}

func (k *Kubelet) configuredLabels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: k.name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, k.cfg.NodeLabels)
	return labels
}

func (k *Kubelet) setNode(n *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node = n
}

func (k *Kubelet) lastNode() *corev1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node
}

// runStatusLoop computes the node's status periodically. It writes the status when it has changed or when the report
// interval has passed. It checks more often until the node is ready, because bringing up a cluster waits for that.
func (k *Kubelet) runStatusLoop(ctx context.Context) {
	var written time.Time
	failures := 0
	for ctx.Err() == nil {
		ready, err := k.writeStatus(ctx, &written)
		every := k.file.NodeStatusUpdateFrequency.Duration
		switch {
		case apierrors.IsNotFound(err):
			// The Node was deleted while its machine still runs: create it again.
			if node, err := k.ensureNode(ctx); err == nil {
				k.setNode(node)
				written = time.Time{}
				continue
			}
			every = time.Second
		case err != nil:
			if ctx.Err() == nil {
				k.env.Log.Warn("write the node's status", "node", k.name, "error", err)
			}
			every = min(200*time.Millisecond<<min(failures, 5), 7*time.Second)
			failures++
		default:
			failures = 0
			if !ready {
				every = 100 * time.Millisecond
			}
		}
		if !sleep.For(ctx, every) {
			return
		}
	}
}

func (k *Kubelet) writeStatus(ctx context.Context, written *time.Time) (ready bool, err error) {
	node := k.lastNode()
	status := k.measureStatus(ctx, &node.Status)
	for _, c := range status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !written.IsZero() && time.Since(*written) < k.file.NodeStatusReportFrequency.Duration &&
		equalStatus(&node.Status, &status) {
		// The measured status is unchanged, but the status in the API may differ: the node controller marks a silent
		// node as not ready, and only the node itself can correct that.
		there, err := k.readNode(ctx)
		if err == nil {
			k.recordSchedulableEvent(there)
		}
		if err != nil || equalStatus(&there.Status, &status) || !isNewer(there, node) {
			return ready, err
		}
		node, status = there, k.measureStatus(ctx, &there.Status)
	}
	was, err := json.Marshal(corev1.Node{Status: node.Status})
	if err != nil {
		return ready, err
	}
	is, err := json.Marshal(corev1.Node{Status: status})
	if err != nil {
		return ready, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Node{})
	if err != nil {
		return ready, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now, err := k.client.CoreV1().
		Nodes().
		Patch(call, k.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return ready, fmt.Errorf("write the status of node %s: %w", k.name, err)
	}
	*written = time.Now()
	k.setNode(now)
	k.recordStatusEvents(&node.Status, &status)
	k.recordSchedulableEvent(now)
	return ready, nil
}

// readNode returns this machine's Node from the API or its cache.
func (k *Kubelet) readNode(ctx context.Context) (*corev1.Node, error) {
	if k.watches.isShared() {
		return k.watches.nodes.Get(k.name)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := k.client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", k.name, err)
	}
	return node, nil
}

// isNewer reports whether a is a later revision of the node than b. An API server may lag behind the server that
// returned b.
func isNewer(a, b *corev1.Node) bool {
	of := func(n *corev1.Node) uint64 {
		v, _ := strconv.ParseUint(n.ResourceVersion, 10, 64) // 0 if it is not a number
		return v
	}
	return of(a) > of(b)
}

// equalStatus reports whether two statuses are equal apart from heartbeat times.
func equalStatus(a, b *corev1.NodeStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*corev1.NodeStatus{a, b} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	own := func(s *corev1.NodeStatus) map[corev1.NodeConditionType]corev1.NodeCondition {
		m := map[corev1.NodeConditionType]corev1.NodeCondition{}
		for _, c := range s.Conditions {
			m[c.Type] = c
		}
		return m
	}
	if !equality.Semantic.DeepEqual(own(a), own(b)) {
		return false
	}
	a.Conditions, b.Conditions = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// runLeaseLoop renews the node's lease every quarter of its duration.
func (k *Kubelet) runLeaseLoop(ctx context.Context) {
	every := time.Duration(k.file.NodeLeaseDurationSeconds) * time.Second / 4
	retry := 200 * time.Millisecond
	var lease *coordinationv1.Lease
	for ctx.Err() == nil {
		var err error
		if lease, err = k.renewLease(ctx, lease); err == nil {
			retry = 200 * time.Millisecond
			k.metrics.LeaseRenewals.Inc()
			if !sleep.For(ctx, every) {
				return
			}
			continue
		}
		if ctx.Err() == nil {
			k.env.Log.Warn("renew the node's lease", "node", k.name, "error", err)
		}
		lease = nil
		if !sleep.For(ctx, retry) {
			return
		}
		retry = min(2*retry, 7*time.Second)
	}
}

func (k *Kubelet) renewLease(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var err error
	if have == nil {
		have, err = leases.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	now := metav1.NewMicroTime(time.Now())
	seconds := int32(k.file.NodeLeaseDurationSeconds)
	if err != nil {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: corev1.NamespaceNodeLease},
		}
		if node := k.lastNode(); node != nil && node.UID != "" {
			lease.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &k.name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		return leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	have = have.DeepCopy()
	have.Spec.HolderIdentity, have.Spec.LeaseDurationSeconds, have.Spec.RenewTime = &k.name, &seconds, &now
	return leases.Update(ctx, have, metav1.UpdateOptions{})
}
