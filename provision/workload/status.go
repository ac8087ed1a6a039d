package workload

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
)

// Node returns the status of a node's Ready condition and the version of its kubelet, or "" if there is no such node.
func (l nodeClient) Node(ctx context.Context, name string) (ready, kubelet string, err error) {
	n, err := l.dynamic.Resource(nodes).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("get node %s: %w", name, err)
	}
	kubelet, _, err = unstructured.NestedString(n.Object, "status", "nodeInfo", "kubeletVersion")
	return readyCondition(n), kubelet, err
}

func readyCondition(n *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
			return fmt.Sprint(m["status"])
		}
	}
	return "Unknown"
}

// Nodes returns the status of every node's Ready condition: True, False or Unknown.
func (l nodeClient) Nodes(ctx context.Context) (map[string]string, error) {
	list, err := l.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[string]string{}
	for _, n := range list.Items {
		ready[n.GetName()] = readyCondition(&n)
	}
	return ready, nil
}

// podTrafficDropped is the condition with which kube-network reports that foreign packet rules drop pods' traffic.
const podTrafficDropped = "PodTrafficDropped"

// DroppedTraffic returns the foreign packet rules that drop pods' traffic, by node.
func (l nodeClient) DroppedTraffic(ctx context.Context) (map[string]string, error) {
	list, err := l.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	dropped := map[string]string{}
	for _, n := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == podTrafficDropped && m["status"] == "True" {
				dropped[n.GetName()] = fmt.Sprint(m["message"])
			}
		}
	}
	return dropped, nil
}

// Health returns for every declared object with replicas what it waits for, or why a Job has failed, or "" if it is
// healthy.
func (l *Live) Health(ctx context.Context, c *config.Cluster) (map[string]string, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	health := map[string]string{}
	for _, d := range desired {
		if !slices.Contains(awaitedKinds, d.Object.GetKind()) {
			continue
		}
		key := d.Address + "  " + d.Object.GetKind() + " " + fullName(d.Object.GetNamespace(), d.Object.GetName())
		live, err := l.get(ctx, d.reference())
		if err != nil {
			return nil, err
		}
		switch {
		case live == nil && d.Object.GetKind() == jobKind:
			continue // it can have been deleted because of its time to live, and plan reports it
		case live == nil:
			health[key] = "is not there"
			continue
		case live.GetKind() == jobKind:
			health[key] = jobFailure(live)
		default:
			health[key] = DescribeUnhealthy(live)
		}
		if health[key] != "" {
			health[key] += l.blockingReason(ctx, live)
		}
	}
	return health, nil
}
