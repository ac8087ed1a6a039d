package network

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/kube/kubernetes"
)

const (
	// missingTolerance is how long the pod network may be missing before the node is marked unavailable, because an
	// unavailable node gets no pods.
	missingTolerance = 10 * time.Second
	// writeTimeout limits one write of the condition.
	writeTimeout = 10 * time.Second
)

// nodeCondition maintains the node's condition NetworkUnavailable.
type nodeCondition struct {
	client       kubernetes.Interface // with the node's credentials
	missingSince time.Time            // since when the network is missing; zero while it is available
	now          func() time.Time
}

// decide returns the condition for a plan of which made routes exist, and whether it should be written yet. A node with
// some missing routes stays available: otherwise one node with a wrong address would keep pods off all other nodes.
func (c *nodeCondition) decide(p Plan, made int) (status corev1.ConditionStatus, reason, message string, isDue bool) {
	exists := len(p.PodCIDRs) > 0 && (made > 0 || len(p.Routes) == 0)
	switch {
	case exists:
		c.missingSince = time.Time{}
		return corev1.ConditionFalse, "RouteCreated", "the node's pod network is there, and so are routes to other " +
			"nodes' pods", true
	case c.missingSince.IsZero():
		c.missingSince = c.now()
	}
	if len(p.PodCIDRs) == 0 {
		return corev1.ConditionTrue, "NoPodCIDR", "the node has no network for its pods", c.now().
			Sub(c.missingSince) >=
			missingTolerance
	}
	return corev1.ConditionTrue, "NoRouteCreated", "no other node's pods can be reached", c.now().
		Sub(c.missingSince) >=
		missingTolerance
}

// writeNetwork writes the condition if it differs from the node's status.
func (c *nodeCondition) writeNetwork(ctx context.Context, n *corev1.Node, p Plan, made int) error {
	status, reason, message, isDue := c.decide(p, made)
	if !isDue {
		return nil
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeNetworkUnavailable && condition.Status == status && condition.Reason == reason {
			return nil
		}
	}
	return c.writeCondition(ctx, n, corev1.NodeNetworkUnavailable, status, reason, message)
}

// PodTrafficDropped is the condition of a node on which packet rules of other programs drop packets of pods.
const PodTrafficDropped corev1.NodeConditionType = "PodTrafficDropped"

// writeDropped writes the condition PodTrafficDropped if its message changed. It does not add a False condition to a
// node that never had dropping rules.
func (c *nodeCondition) writeDropped(ctx context.Context, n *corev1.Node, problems []string) error {
	status, reason, message := corev1.ConditionFalse, "NoForeignRules",
		"no packet rules of other programs drop packets of pods"
	if len(problems) > 0 {
		status, reason, message = corev1.ConditionTrue, "ForeignRules", strings.Join(problems, "; ")
	}
	written := ""
	for _, condition := range n.Status.Conditions {
		if condition.Type == PodTrafficDropped {
			written = condition.Message
		}
	}
	if written == message || written == "" && len(problems) == 0 {
		return nil
	}
	return c.writeCondition(ctx, n, PodTrafficDropped, status, reason, message)
}

// writeCondition writes a condition of the node. The transition time changes only together with the status.
func (c *nodeCondition) writeCondition(ctx context.Context, n *corev1.Node, kind corev1.NodeConditionType,
	status corev1.ConditionStatus, reason, message string) error {
	now := metav1.NewTime(c.now().Truncate(time.Second))
	since := now
	for _, condition := range n.Status.Conditions {
		if condition.Type == kind && condition.Status == status && !condition.LastTransitionTime.IsZero() {
			since = condition.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: since,
	}}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nodes := c.client.CoreV1().Nodes()
	_, err = nodes.Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the condition %s of node %s: %w", kind, n.Name, err)
	}
	return nil
}
