package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"clusterctl/daemons/kubelet/sleep"
)

// runStatusLoop computes the node's status periodically. It writes the status when it has changed or when the report
// interval has passed. It checks more often until the node is ready, because bringing up a cluster waits for that.
func (a *Agent) runStatusLoop(ctx context.Context) {
	var written time.Time
	failures := 0
	for ctx.Err() == nil {
		ready, err := a.writeStatus(ctx, &written)
		every := a.File.NodeStatusUpdateFrequency.Duration
		switch {
		case apierrors.IsNotFound(err):
			// The Node was deleted while its machine still runs: create it again.
			if node, err := a.ensureNode(ctx); err == nil {
				a.SetNode(node)
				written = time.Time{}
				continue
			}
			every = time.Second
		case err != nil:
			if ctx.Err() == nil {
				a.Log.Warn("write the node's status", "node", a.Name, "error", err)
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

func (a *Agent) writeStatus(ctx context.Context, written *time.Time) (ready bool, err error) {
	node := a.Node()
	status := a.MeasureStatus(ctx, &node.Status)
	for _, c := range status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !written.IsZero() && time.Since(*written) < a.File.NodeStatusReportFrequency.Duration &&
		equalStatus(&node.Status, &status) {
		// The measured status is unchanged, but the status in the API may differ: the node controller marks a silent
		// node as not ready, and only the node itself can correct that.
		existing, err := a.Read(ctx)
		if err == nil {
			a.recordSchedulableEvent(existing)
		}
		if err != nil || equalStatus(&existing.Status, &status) || !isNewer(existing, node) {
			return ready, err
		}
		node, status = existing, a.MeasureStatus(ctx, &existing.Status)
	}
	before, err := json.Marshal(corev1.Node{Status: node.Status})
	if err != nil {
		return ready, err
	}
	after, err := json.Marshal(corev1.Node{Status: status})
	if err != nil {
		return ready, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return ready, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now, err := a.Client.CoreV1().
		Nodes().
		Patch(call, a.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return ready, fmt.Errorf("write the status of node %s: %w", a.Name, err)
	}
	*written = time.Now()
	a.SetNode(now)
	a.recordStatusEvents(&node.Status, &status)
	a.recordSchedulableEvent(now)
	return ready, nil
}

// Read returns this machine's Node from the API or its cache.
func (a *Agent) Read(ctx context.Context) (*corev1.Node, error) {
	if a.Cached != nil {
		return a.Cached()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := a.Client.CoreV1().Nodes().Get(ctx, a.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", a.Name, err)
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
