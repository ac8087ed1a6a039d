package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/profile"
	"clusterctl/kube/kubernetes/fake"
)

func nominated(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
}

func promisedNode(t *testing.T, api *fake.Clientset, pod, node string) func() error {
	return func() error {
		if got := get(t, api, pod).Status.NominatedNodeName; got != node {
			return fmt.Errorf("pod %s is promised %q, not %q", pod, got, node)
		}
		return nil
	}
}

// told returns a condition that is met when a pod's PodScheduled is false with a reason and a part of the message.
func told(t *testing.T, api *fake.Clientset, pod, reason, message string) func() error {
	return func() error {
		for _, c := range get(t, api, pod).Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == reason &&
				strings.Contains(c.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("pod %s is told %v, not %s %q", pod, get(t, api, pod).Status.Conditions, reason, message)
	}
}

// A nomination that leads to nothing would reserve the node's resources for ever.
func TestANominationEndsWhenPreemptionHelpsNoMore(t *testing.T) {
	api := start(
		t,
		node("n1"),
		pod("large", nominated("n1"), asks("cpu", "5"), priority(5)),
		pod("small", asks("cpu", "2")),
	)
	wait(t, promisedNode(t, api, "large", ""))
	wait(
		t,
		told(
			t,
			api,
			"large",
			corev1.PodReasonUnschedulable,
			"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
		),
	)
	wait(t, placedOn(t, api, "small", "n1"))
}

func TestANominationEndsWhenThereAreNoNodes(t *testing.T) {
	api := start(t, pod("p", nominated("gone")))
	wait(t, promisedNode(t, api, "p", ""))
	wait(t, told(t, api, "p", corev1.PodReasonUnschedulable, "no nodes available to schedule pods"))
}

func TestANominationStaysWhileAPodMayNotPreempt(t *testing.T) {
	never := corev1.PreemptNever
	api := start(
		t,
		node("n1"),
		pod(
			"large",
			nominated("n1"),
			asks("cpu", "5"),
			priority(5),
			func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never },
		),
	)
	wait(
		t,
		told(t, api, "large", corev1.PodReasonUnschedulable, "preemption: not eligible due to preemptionPolicy=Never."),
	)
	if err := promisedNode(t, api, "large", "n1")(); err != nil {
		t.Error(err)
	}
}

func TestAPodIsToldWhereOthersMakeRoom(t *testing.T) {
	api := start(
		t,
		node("n1"),
		pod("a", on("n1"), asks("cpu", "2")),
		pod("b", on("n1"), asks("cpu", "2")),
		pod("large", asks("cpu", "4"), priority(5)),
	)
	wait(
		t,
		told(
			t,
			api,
			"large",
			corev1.PodReasonUnschedulable,
			"0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node "+
				"n1, preempting 2 victims",
		),
	)
}

// waitingClaim returns a claim with its class, whose volume is provisioned on the pod's node.
func waitingClaim() []runtime.Object {
	mode, class := storagev1.VolumeBindingWaitForFirstConsumer, "late"
	return []runtime.Object{
		&storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: class},
			Provisioner:       "example.com/disk",
			VolumeBindingMode: &mode,
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "data", ResourceVersion: "1"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
}

func uses(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
}

// An autoscaler must not remove a node on which a pod waits for volumes.
func TestAPodWhoseVolumesAreMadeIsNominatedMeanwhile(t *testing.T) {
	api := start(t, append(waitingClaim(), node("n1"), pod("p", uses("data")))...)
	wait(t, promisedNode(t, api, "p", "n1"))
	claim, err := api.CoreV1().PersistentVolumeClaims("default").Get(context.Background(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.ResourceVersion = "9" // the provisioner gives up and removes the selected node
	delete(claim.Annotations, "volume.kubernetes.io/selected-node")
	wait(t, func() error {
		now, err := api.CoreV1().
			PersistentVolumeClaims("default").
			Get(context.Background(), "data", metav1.GetOptions{})
		if err != nil || now.Annotations["volume.kubernetes.io/selected-node"] != "n1" {
			return fmt.Errorf("no node is selected: %v", err)
		}
		return nil
	})
	if err := api.CoreV1().Nodes().Delete(context.Background(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().PersistentVolumeClaims("default").Update(context.Background(), claim,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, event(api, "FailedScheduling", `running PreBind plugin "VolumeBinding": binding volumes: `))
	wait(t, promisedNode(t, api, "p", ""))
}

func TestAPodThatCannotBeBoundIsToldOfTheError(t *testing.T) {
	api := start(t)
	react(api, "create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "binding", nil, fmt.Errorf("a webhook says no")
	})
	if _, err := api.CoreV1().Nodes().Create(context.Background(), node("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, api, pod("p"))
	const why = `running Bind plugin "DefaultBinder": a webhook says no`
	wait(t, told(t, api, "p", corev1.PodReasonSchedulerError, why))
	wait(t, event(api, "FailedScheduling", why))
}

// A message that is too long is cut in the event, and complete in the condition.
func TestLongReasonsAreCutInEvents(t *testing.T) {
	name := strings.Repeat("a", 1200)
	api := start(t, node("n1"), pod("p", uses(name)))
	wait(t, told(t, api, "p", corev1.PodReasonUnschedulable, name+`" not found.`))
	wait(t, func() error {
		list, err := api.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "FailedScheduling" {
				if len(e.Message) != 1024 || !strings.HasSuffix(e.Message, "aaa ...") {
					t.Fatalf("an event of %d bytes: %s", len(e.Message), e.Message)
				}
				return nil
			}
		}
		return fmt.Errorf("no event")
	})
}

// Events name the scheduler of their profile.
func TestEventsNameTheProfile(t *testing.T) {
	settings := profile.DefaultSettings()
	second := profile.Default()
	second.Name = "second"
	settings.Profiles = append(settings.Profiles, second)
	api := startWith(t, settings, node("n1"), pod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "second" }))
	wait(t, event(api, "Scheduled", "Successfully assigned default/p to n1"))
	list, err := api.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Source.Component != "second" || e.ReportingController != "second" {
			t.Errorf("%s is from %q, reported by %q", e.Reason, e.Source.Component, e.ReportingController)
		}
	}
}

// A victim that could not be marked is not deleted, because its owner would count the deletion as a failure.
func TestAVictimIsDeletedOnlyWithItsMark(t *testing.T) {
	api := start(t, node("n1"), pod("lesser", on("n1"), asks("cpu", "4"), func(p *corev1.Pod) { p.Generation = 3 }))
	var marks []string
	deleted := -1 // number of marks before it was deleted; -1 if it was not
	react(api, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || patch.GetName() != "lesser" {
			return false, nil, nil
		}
		if marks = append(marks, string(patch.GetPatch())); len(marks) == 1 {
			return true, nil, fmt.Errorf("the API is away")
		}
		return false, nil, nil
	})
	react(api, "delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		deleted = len(marks)
		return false, nil, nil
	})
	create(t, api, pod("important", priority(10), asks("cpu", "2")))
	wait(t, placedOn(t, api, "important", "n1"))
	api.Lock()
	defer api.Unlock()
	if deleted != 2 || !strings.Contains(marks[1], `"observedGeneration":3`) {
		t.Errorf("it was deleted after %d marks: %v", deleted, marks)
	}
}

// twenty returns a cluster of 20 nodes. Half of them are cordoned. The others are full of pods with descending
// priorities.
func twenty() *cluster.Cluster {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 20 {
		name := fmt.Sprintf("n%02d", i)
		nodes = append(nodes, node(name, func(n *corev1.Node) { n.Spec.Unschedulable = i >= 10 }))
		pods = append(pods, pod("on-"+name, on(name), asks("cpu", "4"), priority(int32(50-i)), labelled("on", name)))
	}
	return filled(nodes, pods...)
}

// The percentage refers to the nodes that may fit. The search continues until a candidate violates no budget.
func TestPreemptionLooksAtAShareOfTheNodesThatMayDo(t *testing.T) {
	by := profile.Default()
	by.Preempt = profile.Preempting{Percent: 20}
	c := twenty()
	s := newSearch(by, c, seen(pod("p", asks("cpu", "1"), priority(100))), nil)
	refused, _ := s.place(0)
	if got := s.preempt(refused, nil); got.Node == nil || got.Node.Name != "n01" {
		t.Errorf("preempts on %+v, of two candidates the second is better", got.Node)
	}
	known := budgets{}
	known.set(
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "on", Operator: "In", Values: []string{"n00", "n01", "n02"}},
					},
				}},
		},
	)
	if got := s.preempt(refused, known); got.Node == nil || got.Node.Name != "n03" {
		t.Errorf("preempts on %+v, the first that breaks no budget is n03", got.Node)
	}
}

func TestReasonsWhyPreemptionDoesNotHelpAreSorted(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 5 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", i), func(n *corev1.Node) { n.Spec.Unschedulable = i < 2 }))
	}
	var pods []*corev1.Pod
	for i := 2; i < 5; i++ {
		pods = append(pods, pod(fmt.Sprintf("p%d", i), on(fmt.Sprintf("n%d", i)), asks("cpu", "4"), priority(9)))
	}
	s := looking(filled(nodes, pods...), seen(pod("p", asks("cpu", "1"), priority(1))))
	refused, _ := s.place(0)
	const want = "0/5 nodes are available: 2 Preemption is not helpful for scheduling, 3 No preemption victims found " +
		"for incoming pod."
	if got := s.preempt(refused, nil).Reason; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// still returns a scheduler that does not run. Tests pass events and schedule pods themselves.
func still(t *testing.T) *scheduler {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return newScheduler(fake.NewClientset(), slog.New(slog.DiscardHandler), m, profile.DefaultSettings())
}
