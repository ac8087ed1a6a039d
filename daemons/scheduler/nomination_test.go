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

func nominatedNodeIs(t *testing.T, api *fake.Clientset, pod, node string) func() error {
	return func() error {
		if got := getPod(t, api, pod).Status.NominatedNodeName; got != node {
			return fmt.Errorf("pod %s is promised %q, not %q", pod, got, node)
		}
		return nil
	}
}

// refusalReported returns a condition that is met when a pod's PodScheduled is false with a reason and a part of the
// message.
func refusalReported(t *testing.T, api *fake.Clientset, pod, reason, message string) func() error {
	return func() error {
		for _, c := range getPod(t, api, pod).Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == reason &&
				strings.Contains(c.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("the status of pod %s is %v, not %s %q", pod, getPod(t, api, pod).Status.Conditions, reason,
			message)
	}
}

// A nomination that leads to nothing would reserve the node's resources for ever.
func TestNominationsEndWhenPreemptionCannotHelp(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("large", nominated("n1"), withRequest("cpu", "5"), priority(5)),
		pod("small", withRequest("cpu", "2")))
	waitFor(t, nominatedNodeIs(t, api, "large", ""))
	waitFor(t, refusalReported(t, api, "large", corev1.PodReasonUnschedulable,
		"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."))
	waitFor(t, isPlacedOn(t, api, "small", "n1"))
}

func TestNominationsEndWithoutNodes(t *testing.T) {
	api := startScheduler(t, pod("p", nominated("gone")))
	waitFor(t, nominatedNodeIs(t, api, "p", ""))
	waitFor(t, refusalReported(t, api, "p", corev1.PodReasonUnschedulable, "no nodes available to schedule pods"))
}

func TestNominationsStayIfThePodCannotPreempt(t *testing.T) {
	never := corev1.PreemptNever
	api := startScheduler(t, node("n1"), pod("large", nominated("n1"), withRequest("cpu", "5"), priority(5),
		func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }))
	waitFor(t, refusalReported(t, api, "large", corev1.PodReasonUnschedulable,
		"preemption: not eligible due to preemptionPolicy=Never."))
	if err := nominatedNodeIs(t, api, "large", "n1")(); err != nil {
		t.Error(err)
	}
}

func TestPreemptionReportsTheNominatedNode(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("a", withNodeName("n1"), withRequest("cpu", "2")),
		pod("b", withNodeName("n1"), withRequest("cpu", "2")), pod("large", withRequest("cpu", "4"), priority(5)))
	waitFor(t, refusalReported(t, api, "large", corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 "+
		"Insufficient cpu. preemption: found a potential placement for pod on node n1, preempting 2 victims"))
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

func withClaim(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
}

// An autoscaler must not remove a node on which a pod waits for volumes.
func TestPodsAreNominatedWhileTheirVolumesAreProvisioned(t *testing.T) {
	api := startScheduler(t, append(waitingClaim(), node("n1"), pod("p", withClaim("data")))...)
	waitFor(t, nominatedNodeIs(t, api, "p", "n1"))
	claim, err := api.CoreV1().PersistentVolumeClaims("default").Get(context.Background(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.ResourceVersion = "9" // the provisioner gives up and removes the selected node
	delete(claim.Annotations, "volume.kubernetes.io/selected-node")
	waitFor(t, func() error {
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
	waitFor(t, hasEvent(api, "FailedScheduling", `running PreBind plugin "VolumeBinding": binding volumes: `))
	waitFor(t, nominatedNodeIs(t, api, "p", ""))
}

func TestBindingErrorsAreReportedOnThePod(t *testing.T) {
	api := startScheduler(t)
	react(api, "create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "binding", nil, fmt.Errorf("a webhook says no")
	})
	if _, err := api.CoreV1().Nodes().Create(context.Background(), node("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, api, pod("p"))
	const reason = `running Bind plugin "DefaultBinder": a webhook says no`
	waitFor(t, refusalReported(t, api, "p", corev1.PodReasonSchedulerError, reason))
	waitFor(t, hasEvent(api, "FailedScheduling", reason))
}

// A message that is too long is cut in the event, and complete in the condition.
func TestLongReasonsAreTruncatedInEvents(t *testing.T) {
	name := strings.Repeat("a", 1200)
	api := startScheduler(t, node("n1"), pod("p", withClaim(name)))
	waitFor(t, refusalReported(t, api, "p", corev1.PodReasonUnschedulable, name+`" not found.`))
	waitFor(t, func() error {
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
	waitFor(t, hasEvent(api, "Scheduled", "Successfully assigned default/p to n1"))
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
func TestVictimsAreDeletedOnlyAfterTheyAreMarked(t *testing.T) {
	api := startScheduler(t, node("n1"),
		pod("lesser", withNodeName("n1"), withRequest("cpu", "4"), func(p *corev1.Pod) { p.Generation = 3 }))
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
	createPod(t, api, pod("important", priority(10), withRequest("cpu", "2")))
	waitFor(t, isPlacedOn(t, api, "important", "n1"))
	api.Lock()
	defer api.Unlock()
	if deleted != 2 || !strings.Contains(marks[1], `"observedGeneration":3`) {
		t.Errorf("it was deleted after %d marks: %v", deleted, marks)
	}
}

// twentyNodes returns a cluster of 20 nodes. Half of them are cordoned. The others are full of pods with descending
// priorities.
func twentyNodes() *cluster.Cluster {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 20 {
		name := fmt.Sprintf("n%02d", i)
		nodes = append(nodes, node(name, func(n *corev1.Node) { n.Spec.Unschedulable = i >= 10 }))
		pods = append(pods, pod("on-"+name, withNodeName(name), withRequest("cpu", "4"), priority(int32(50-i)),
			labelled("on", name)))
	}
	return newCluster(nodes, pods...)
}

// The percentage refers to the nodes that may fit. The search continues until a candidate violates no budget.
func TestPreemptionChecksAPercentageOfTheCandidateNodes(t *testing.T) {
	by := profile.Default()
	by.Preempt = profile.Preemption{Percent: 20}
	c := twentyNodes()
	s := newSearch(by, c, convertPod(pod("p", withRequest("cpu", "1"), priority(100))), nil)
	refused, _ := s.selectNode(0)
	if got := s.preempt(refused, nil); got.Node == nil || got.Node.Name != "n01" {
		t.Errorf("preempts on %+v, of two candidates the second is better", got.Node)
	}
	existing := budgets{}
	existing.set(
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
	if got := s.preempt(refused, existing); got.Node == nil || got.Node.Name != "n03" {
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
		pods = append(pods, pod(fmt.Sprintf("p%d", i), withNodeName(fmt.Sprintf("n%d", i)), withRequest("cpu", "4"),
			priority(9)))
	}
	s := newTestSearch(newCluster(nodes, pods...), convertPod(pod("p", withRequest("cpu", "1"), priority(1))))
	refused, _ := s.selectNode(0)
	const want = "0/5 nodes are available: 2 Preemption is not helpful for scheduling, 3 No preemption victims found " +
		"for incoming pod."
	if got := s.preempt(refused, nil).Reason; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// idleScheduler returns a scheduler that does not run. Tests pass events and schedule pods themselves.
func idleScheduler(t *testing.T) *scheduler {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return newScheduler(fake.NewClientset(), slog.New(slog.DiscardHandler), m, profile.DefaultSettings())
}
