package disruption

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

var now = time.Unix(1_000_000, 0)

func newTestController(
	t *testing.T,
	pods []*corev1.Pod,
	budgets ...*policyv1.PodDisruptionBudget,
) (*controller, *fake.Clientset, *record.FakeRecorder) {
	t.Helper()
	client, events := fake.NewClientset(), record.NewFakeRecorder(100)
	factory := informers.New(client)
	d, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler), Events: events,
		Clock: clocktesting.NewFakeClock(now)}).(*controller)
	if !ok {
		t.Fatal("it is another controller")
	}
	for _, p := range pods {
		p.Namespace = "n"
		if err := client.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
		if err := informers.Pods(factory).Informer().GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range budgets {
		if err := client.Tracker().Add(b); err != nil {
			t.Fatal(err)
		}
		if err := informers.PodDisruptionBudgets(factory).Informer().GetIndexer().Add(b); err != nil {
			t.Fatal(err)
		}
	}
	return d, client, events
}

// A disruption may be abandoned. Without the reset, the pod would count as disrupted however it ends.
func TestStaleDisruptionConditionsAreCleared(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		ago    time.Duration
		change func(*corev1.Pod)
		want   corev1.ConditionStatus
	}{
		"two minutes ago":  {"EvictionByEvictionAPI", 2 * time.Minute, nil, corev1.ConditionFalse},
		"a moment ago":     {"EvictionByEvictionAPI", 119 * time.Second, nil, corev1.ConditionTrue},
		"by the scheduler": {"PreemptionByScheduler", time.Hour, nil, corev1.ConditionFalse},
		"by a kubelet":     {"TerminationByKubelet", time.Hour, nil, corev1.ConditionTrue},
		"it goes": {"DeletionByTaintManager", time.Hour,
			func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"x/y"} },
			corev1.ConditionTrue},
		"it has failed": {"DeletionByPodGC", time.Hour,
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, corev1.ConditionTrue},
		"it was taken back before it": {"EvictionByEvictionAPI", time.Hour,
			func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, corev1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
					{
						Type:               corev1.DisruptionTarget,
						Status:             corev1.ConditionTrue,
						Reason:             c.reason,
						Message:            "it goes",
						LastTransitionTime: metav1.NewTime(now.Add(-c.ago)),
					}}},
			}
			if c.change != nil {
				c.change(p)
			}
			d, client, _ := newTestController(t, []*corev1.Pod{p})
			if err := d.clearStale(t.Context(), "n/p"); err != nil {
				t.Fatal(err)
			}
			current, err := client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := current.Status.Conditions; len(got) != 1 || got[0].Status != c.want {
				t.Errorf("it says %+v", got)
			} else if taken := c.want == corev1.ConditionFalse && got[0].LastTransitionTime.Time.Equal(now); taken &&
				got[0].Reason+got[0].Message != "" {
				t.Errorf("it says why it is disrupted, and is not: %+v", got[0])
			}
		})
	}
}

func TestBudgetsReportPodsThatWereNotDeleted(t *testing.T) {
	none := intstr.FromInt32(0)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &none, Selector: &metav1.LabelSelector{}},
	}
	b.Status.DisruptedPods = map[string]metav1.Time{
		"late": metav1.NewTime(now.Add(-2 * time.Minute)),
		"soon": metav1.NewTime(now.Add(-time.Minute)),
		"gone": metav1.NewTime(now.Add(-time.Hour)),
	}
	d, client, events := newTestController(t, []*corev1.Pod{pod("late", "True"), pod("soon", "True")}, b)
	if err := d.sync(t.Context(), "n/b"); err != nil {
		t.Fatal(err)
	}
	close(events.Events)
	var recorded []string
	for e := range events.Events {
		recorded = append(recorded, e)
	}
	if !slices.Equal(recorded, []string{"Warning NotDeleted Pod was expected by PDB n/b to be deleted but it wasn't"}) {
		t.Errorf("events %q", recorded)
	}
	got, err := client.PolicyV1().PodDisruptionBudgets("n").Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Status; len(s.DisruptedPods) != 1 || s.CurrentHealthy != 1 {
		t.Errorf("its status is %+v", s)
	}
}

var errNone = errors.New("found no controllers for pod \"a\"")

func TestBudgetConditions(t *testing.T) {
	for name, c := range map[string]struct {
		min  intstr.IntOrString
		want string
	}{
		"some may go":             {intstr.FromInt32(1), "True SufficientPods"},
		"none may":                {intstr.FromInt32(2), "False InsufficientPods"},
		"it cannot be worked out": {intstr.FromString("50%"), "False SyncFailed found no controllers for pod \"a\""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "b", Generation: 3},
				Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &c.min, Selector: &metav1.LabelSelector{}}}
			status, _, err := Status(b, []*corev1.Pod{pod("a", "True"), pod("b", "True")}, 2, now)
			if err != nil {
				t.Fatal(err)
			}
			if status.ObservedGeneration != 3 {
				t.Errorf("what it has seen is of generation %d", status.ObservedGeneration)
			}
			if c.min.Type == intstr.String {
				b.Status.ObservedGeneration = 2
				if status = failedStatus(b, errNone, now); status.ObservedGeneration != 2 {
					t.Errorf("it says that it was worked out for generation %d", status.ObservedGeneration)
				}
			}
			got := status.Conditions[0]
			text := string(got.Status) + " " + got.Reason
			if got.Message != "" {
				text += " " + got.Message
			}
			if text != c.want || got.Type != "DisruptionAllowed" ||
				got.ObservedGeneration != status.ObservedGeneration {
				t.Errorf("it says %+v", got)
			}
		})
	}
}
