package network

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes/fake"
)

// The condition matches the network: a missing network is reported after a while, an available one at once, and nothing
// is written twice.
// Proves S22.
func TestNodeConditionReportsAMissingNetwork(t *testing.T) {
	now := time.Unix(1000, 0)
	n := machine("a", "10.244.0.0/24", "10.0.0.1")
	client := fake.NewClientset(n)
	c := nodeCondition{client: client, now: func() time.Time { return now }}
	two := NewPlan("a",
		[]*corev1.Node{n, machine("b", "10.244.1.0/24", "10.0.0.2"), machine("c", "10.244.2.0/24", "10.0.0.3")})
	writes := 0
	for _, step := range []struct {
		what   string
		after  time.Duration
		plan   Plan
		made   int
		status corev1.ConditionStatus
		reason string
		writes int
	}{
		{"no network yet", 0, Plan{}, 0, "", "", 0},
		{"it is there", time.Second, two, 2, corev1.ConditionFalse, "RouteCreated", 1},
		{"still", time.Minute, two, 2, corev1.ConditionFalse, "RouteCreated", 1},
		{"one node is out of reach", time.Second, two, 1, corev1.ConditionFalse, "RouteCreated", 1},
		{"all are, for a moment", time.Second, two, 0, corev1.ConditionFalse, "RouteCreated", 1},
		{"and for longer", missingTolerance, two, 0, corev1.ConditionTrue, "NoRouteCreated", 2},
		{"one is back", time.Second, two, 1, corev1.ConditionFalse, "RouteCreated", 3},
		{"its own is gone", time.Second, Plan{}, 0, corev1.ConditionFalse, "RouteCreated", 3},
		{"for good", missingTolerance, Plan{}, 0, corev1.ConditionTrue, "NoPodCIDR", 4},
		{"alone", time.Second, Plan{PodCIDRs: two.PodCIDRs}, 0, corev1.ConditionFalse, "RouteCreated", 5},
	} {
		now = now.Add(step.after)
		before := len(client.Actions())
		if err := c.writeNetwork(t.Context(), n, step.plan, step.made); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		writes += len(client.Actions()) - before
		var err error
		if n, err = client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		var condition corev1.NodeCondition
		for _, one := range n.Status.Conditions {
			if one.Type == corev1.NodeNetworkUnavailable {
				condition = one
			}
		}
		if condition.Status != step.status || condition.Reason != step.reason || writes != step.writes {
			t.Errorf("%s: %s %s after %d writes; want %s %s after %d", step.what, condition.Status, condition.Reason,
				writes,
				step.status, step.reason, step.writes)
		}
	}
}

// The transition time is when the first dropping rule appeared, no matter which rules follow.
func TestNodeConditionReportsDroppedPackets(t *testing.T) {
	now := time.Unix(1000, 0)
	n := machine("a", "10.244.0.0/24", "10.0.0.1")
	client := fake.NewClientset(n)
	c := nodeCondition{client: client, now: func() time.Time { return now }}
	for _, step := range []struct {
		problems []string
		status   corev1.ConditionStatus
		since    int64
		message  string
	}{
		{nil, "", 0, ""}, // no condition on a node that never had dropping rules
		{[]string{"one"}, corev1.ConditionTrue, 1020, "one"},
		{[]string{"one", "two"}, corev1.ConditionTrue, 1020, "one; two"},
		{nil, corev1.ConditionFalse, 1040, "no packet rules of other programs drop packets of pods"},
		{nil, corev1.ConditionFalse, 1040, "no packet rules of other programs drop packets of pods"},
		{[]string{"one"}, corev1.ConditionTrue, 1060, "one"},
	} {
		now = now.Add(10 * time.Second)
		if err := c.writeDropped(t.Context(), n, step.problems); err != nil {
			t.Fatal(err)
		}
		var err error
		if n, err = client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		got := corev1.NodeCondition{LastTransitionTime: metav1.Unix(0, 0)}
		for _, one := range n.Status.Conditions {
			if one.Type == PodTrafficDropped {
				got = one
			}
		}
		if got.Status != step.status || got.Message != step.message || got.LastTransitionTime.Unix() != step.since {
			t.Errorf("problems %q: condition %s since %d: %q", step.problems, got.Status, got.LastTransitionTime.Unix(),
				got.Message)
		}
	}
}
