package kubelet

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newLease(name string, at metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
	}
}

// A silent node is marked with status Unknown. When it is back, its own status has not changed, but it must report that
// it is ready.
// Proves S04, S05.
func TestANodeMarkedAsLostReportsThatItIsReady(t *testing.T) {
	n := newNode(t)
	n.file.NodeStatusUpdateFrequency = metav1.Duration{Duration: 20 * time.Millisecond}
	n.start()
	ready := func() *corev1.NodeCondition {
		node, err := n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		for i, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return &node.Status.Conditions[i]
			}
		}
		return nil
	}
	build := func(status corev1.ConditionStatus) func() bool {
		return func() bool { c := ready(); return c != nil && c.Status == status }
	}
	n.until("the node to be ready", build(corev1.ConditionTrue))
	node, err := n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status = corev1.ConditionUnknown
	}
	node.ResourceVersion = "1000" // the API server increments it, but the fake client does not
	if _, err := n.client.CoreV1().Nodes().UpdateStatus(context.Background(), node,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the node to be ready again", build(corev1.ConditionTrue))
}
