package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
)

// Nodes returns for every node what its Ready condition says: True, False or Unknown.
func (l *Live) Nodes(ctx context.Context) (map[string]string, error) {
	list, err := l.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[string]string{}
	for _, n := range list.Items {
		ready[n.GetName()] = "Unknown"
		conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
				ready[n.GetName()] = fmt.Sprint(m["status"])
			}
		}
	}
	return ready, nil
}

// Health says for every declared object with replicas what it waits for, "" when it is well.
func (l *Live) Health(ctx context.Context, c *config.Cluster) (map[string]string, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	health := map[string]string{}
	for _, d := range desired {
		switch d.Object.GetKind() {
		case "Deployment", "StatefulSet", "DaemonSet":
		default:
			continue
		}
		key := d.Address + "  " + d.Object.GetKind() + " " + fullName(d.Object.GetNamespace(), d.Object.GetName())
		live, err := l.get(ctx, d.reference())
		if err != nil {
			return nil, err
		}
		if live == nil {
			health[key] = "is not there"
			continue
		}
		if health[key] = Unhealthy(live); health[key] != "" {
			health[key] += l.why(ctx, live)
		}
	}
	return health, nil
}
