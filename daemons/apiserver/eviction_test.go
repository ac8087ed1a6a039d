package apiserver_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// A node may evict only its own pods. A refused eviction takes nothing from the pod's budget.
// Proves S12.
func TestRefusedEvictionsKeepTheBudget(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.CoreV1().ServiceAccounts("default").Create(ctx, defaultAccount(), metav1.CreateOptions{}))
	for _, name := range []string{"mine", "theirs"} {
		createNodeWithBudget(ctx, t, client, name)
	}
	node := kubernetes.NewForConfigOrDie(c.configFor(certs.Node("mine")))
	allowed := func(ctx context.Context, name string) int32 {
		t.Helper()
		b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
		must(b, err)
		return b.Status.DisruptionsAllowed
	}
	err := node.CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	if err == nil ||
		!strings.Contains(err.Error(), `node "mine" can only evict pods with spec.nodeName set to itself`) {
		t.Error(err)
	}
	if n := allowed(ctx, "theirs"); n != 1 {
		t.Errorf("%d disruptions are left of the other node's budget", n)
	}
	if err := node.CoreV1().Pods("default").EvictV1(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}); err != nil {
		t.Error(err)
	}
	if n := allowed(ctx, "mine"); n != 0 {
		t.Errorf("%d disruptions are left of its own", n)
	}
	// The eviction that spends the last disruption also sets the condition, for clients that wait for it.
	spent, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "mine", metav1.GetOptions{})
	must(spent, err)
	allowing := meta.FindStatusCondition(spent.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if allowing == nil || allowing.Status != metav1.ConditionFalse ||
		allowing.Reason != policyv1.InsufficientPodsReason ||
		allowing.ObservedGeneration != spent.Generation {
		t.Errorf("its condition is %+v", allowing)
	}
	if _, ok := spent.Status.DisruptedPods["mine"]; !ok {
		t.Errorf("the pod is not among those that go: %v", spent.Status.DisruptedPods)
	}
	must(
		client.PolicyV1().
			PodDisruptionBudgets("default").
			Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "second"},
				Spec: policyv1.PodDisruptionBudgetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}},
				}}, metav1.CreateOptions{}),
	)
	err = client.CoreV1().
		Pods("default").
		EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	if err == nil ||
		err.Error() != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "+
			"support." {
		t.Errorf("with two budgets: %v", err)
	}
}

// createNodeWithBudget creates a node, a ready pod on it, and a budget with one disruption, all of one name.
func createNodeWithBudget(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(
		client.CoreV1().
			Nodes().
			Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}),
	)
	p, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:   name,
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}, metav1.CreateOptions{})
	must(p, err)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{}))
	one := intstr.FromInt32(1)
	b, err := client.PolicyV1().
		PodDisruptionBudgets("default").
		Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: &one,
				Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			}}, metav1.CreateOptions{})
	must(b, err)
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation,
		DisruptionsAllowed: 1,
		CurrentHealthy:     1,
		ExpectedPods:       1,
	}
	must(client.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, b, metav1.UpdateOptions{}))
}

// The status of an evicted pod states the reason before the pod is deleted, for its kubelet and for controllers that
// count failures.
func TestEvictedPodsHaveADisruptionCondition(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stale := "1"
	for name, c := range map[string]struct {
		options *metav1.DeleteOptions // if its resource version is empty, the test uses the pod's own
		want    string
		goes    bool
	}{
		"plain": {nil, "True EvictionByEvictionAPI Eviction API: evicting", true},
		"by-its-version": {&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}},
			"True EvictionByEvictionAPI Eviction API: evicting", true},
		"by-an-old-version": {&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale}}, "",
			false},
		"as-if": {&metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, "", false},
	} {
		p, err := client.CoreV1().
			Pods("default").
			Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/wait"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if o := c.options; o != nil && o.Preconditions != nil && o.Preconditions.ResourceVersion == nil {
			o.Preconditions.ResourceVersion = &p.ResourceVersion
		}
		err = client.CoreV1().
			Pods("default").
			EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: c.options})
		if refused := name == "by-an-old-version"; (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		current, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, condition := range current.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget {
				got = string(condition.Status) + " " + condition.Reason + " " + condition.Message
			}
		}
		if got != c.want || (current.DeletionTimestamp != nil) != c.goes {
			t.Errorf("%s: it says %q, and goes at %v", name, got, current.DeletionTimestamp)
		}
	}
}
