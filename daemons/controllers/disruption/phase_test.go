package disruption

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
)

// Pods of every phase count towards a budget, including failed and succeeded ones, until they are deleted.
func TestPodsOfAllPhasesCount(t *testing.T) {
	inPhase := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
		p := pod(name, ready)
		p.Labels, p.Status.Phase = map[string]string{"app": "a"}, phase
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: ptr.To(true)},
		}
		return p
	}
	for name, c := range map[string]struct {
		min, max string
		phases   []corev1.PodPhase // of pods besides one that is running and ready
		want     string            // "expected, healthy/desired, allowed"
	}{
		"a minimum, one that waits":         {"1", "", []corev1.PodPhase{corev1.PodPending}, "2 1/1 0"},
		"a minimum, one that has failed":    {"1", "", []corev1.PodPhase{corev1.PodFailed}, "2 1/1 0"},
		"a minimum, one that has succeeded": {"1", "", []corev1.PodPhase{corev1.PodSucceeded}, "2 1/1 0"},
		"a minimum, of unknown phase":       {"1", "", []corev1.PodPhase{corev1.PodUnknown}, "2 1/1 0"},
		"a minimum of none, all over": {"0", "", []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded},
			"3 1/0 1"},
		"a share, one that has failed":   {"50%", "", []corev1.PodPhase{corev1.PodFailed}, "4 1/2 0"},
		"a maximum, one that has failed": {"", "3", []corev1.PodPhase{corev1.PodFailed}, "4 1/1 0"},
		"a maximum, one that waits":      {"", "4", []corev1.PodPhase{corev1.PodPending}, "4 1/0 1"},
		"neither minimum nor maximum":    {"", "", []corev1.PodPhase{corev1.PodPending}, "0 1/0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "b", Generation: 2},
				Spec: policyv1.PodDisruptionBudgetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				}}
			if c.min != "" {
				b.Spec.MinAvailable = ptr.To(intstr.Parse(c.min))
			}
			if c.max != "" {
				b.Spec.MaxUnavailable = ptr.To(intstr.Parse(c.max))
			}
			pods := []*corev1.Pod{inPhase("runs", corev1.PodRunning, "True")}
			for i, phase := range c.phases {
				pods = append(pods, inPhase(fmt.Sprint("other-", i), phase, "False"))
			}
			d, client, _ := newTestController(t, pods, b)
			sets := informers.StatefulSets(d.Informers).Informer().GetIndexer()
			if err := sets.Add(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "db", UID: "db"},
				Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](4)}}); err != nil {
				t.Fatal(err)
			}
			if err := d.sync(t.Context(), "n/b"); err != nil {
				t.Fatal(err)
			}
			current, err := client.PolicyV1().PodDisruptionBudgets("n").Get(t.Context(), "b", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := current.Status
			if got := fmt.Sprintf("%d %d/%d %d", s.ExpectedPods, s.CurrentHealthy, s.DesiredHealthy,
				s.DisruptionsAllowed); got != c.want ||
				s.ObservedGeneration != 2 {
				t.Errorf("it says %s of generation %d, want %s", got, s.ObservedGeneration, c.want)
			}
		})
	}
}

// The eviction API evicts no pod that several budgets cover, so a second budget causes a warning.
func TestPodsWithSeveralBudgetsAreReported(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		}
	}
	p := pod("p", "True")
	d, _, events := newTestController(t, []*corev1.Pod{p}, budget("a"))
	d.podChanged(nil, p)
	if len(events.Events) != 0 {
		t.Fatalf("with one budget, the event is %s", <-events.Events)
	}
	d, _, events = newTestController(t, []*corev1.Pod{p}, budget("a"), budget("b"))
	d.podChanged(nil, p)
	if len(events.Events) != 1 {
		t.Fatalf("there are %d events", len(events.Events))
	}
	got := <-events.Events
	const begins = `Warning MultiplePodDisruptionBudgets Pod "n"/"p" matches multiple PodDisruptionBudgets.  Chose "`
	if got != begins+`a" arbitrarily.` && got != begins+`b" arbitrarily.` {
		t.Errorf("the event is %q", got)
	}
}
