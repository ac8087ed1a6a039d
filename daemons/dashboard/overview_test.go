package dashboard_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/dashboard"
)

func nodeObject(name string, ready corev1.ConditionStatus, unschedulable bool) *corev1.Node {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		Spec:       corev1.NodeSpec{Unschedulable: unschedulable},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready},
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}},
	}
}

func podObject(name, node string, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}},
		Status: status}
}

func waiting(reason string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
}

func newFilledWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, dashboard.SignInByToken)
	running := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app",
		Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	w.create(t.Context(), nodeObject("a", corev1.ConditionTrue, false), nodeObject("b", corev1.ConditionUnknown, false),
		nodeObject("c", corev1.ConditionTrue, true), podObject("well", "a", running),
		podObject("crashes", "a", waiting("CrashLoopBackOff")), podObject("waits", "", corev1.PodStatus{}),
		podObject("done", "a", corev1.PodStatus{Phase: corev1.PodSucceeded}))
	return w
}

func TestOverviewListsWhatNeedsAttention(t *testing.T) {
	w := newFilledWorld(t)
	b := w.signInByToken(adminToken)
	var o struct {
		Problems []struct {
			Severity string
			Object   struct{ Group, Resource, Kind, Namespace, Name string }
			Message  string
		}
		ProblemsTotal int
		Unseen        []string
		Nodes         struct{ Total, Ready int }
		Pods          struct{ Total, Running, Pending, Failed int }
	}
	b.get("/api/overview", &o)
	var lines []string
	for _, p := range o.Problems {
		lines = append(lines, p.Severity+" "+p.Object.Kind+" "+p.Object.Name+" "+p.Message)
	}
	want := []string{
		"error Node b The node is NotReady.",
		"error Pod crashes The pod does not run: CrashLoopBackOff.",
		"warning Node c The node is cordoned.",
		"warning Pod waits The pod does not run yet: Pending.",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if o.ProblemsTotal != 4 || len(o.Unseen) != 0 || o.Nodes.Total != 3 || o.Nodes.Ready != 2 || o.Pods.Total != 4 ||
		o.Pods.Running != 1 || o.Pods.Pending != 1 || o.Pods.Failed != 1 {
		t.Errorf("%+v", o)
	}
}

func TestNodesHaveTheRequestsOfTheirPods(t *testing.T) {
	w := newFilledWorld(t)
	b := w.signInByToken(adminToken)
	var nodes []struct {
		Name                  string
		Ready, Schedulable    bool
		Pressures, Roles      []string
		Capacity, Allocatable struct{ CPU, Memory, Pods float64 }
		Requests              *struct{ CPU, Memory, Pods float64 }
		Usage                 any
		Address               string
	}
	b.get("/api/nodes", &nodes)
	if len(nodes) != 3 {
		t.Fatalf("%+v", nodes)
	}
	a := nodes[0]
	if a.Name != "a" || !a.Ready || !a.Schedulable || !slices.Equal(a.Pressures, []string{"MemoryPressure"}) ||
		!slices.Equal(a.Roles, []string{"worker"}) || a.Capacity.CPU != 2 || a.Allocatable.Memory != 4<<30 ||
		a.Requests == nil || a.Requests.CPU != 0.5 || a.Requests.Memory != 2<<30 || a.Requests.Pods != 2 ||
		a.Usage != nil || a.Address != "192.0.2.7" {
		t.Errorf("%+v", a)
	}
	if nodes[1].Ready || nodes[2].Schedulable || nodes[2].Requests.Pods != 0 {
		t.Errorf("%+v", nodes)
	}
}

func TestCausesAreExplained(t *testing.T) {
	w := newFilledWorld(t)
	b := w.signInByToken(adminToken)
	var report struct {
		Verdict string
		Healthy bool
		Chain   []any
	}
	b.get("/api/why?group=&resource=pods&namespace=default&name=crashes", &report)
	if report.Healthy || len(report.Chain) == 0 || !strings.Contains(report.Verdict, "crashes") {
		t.Errorf("%+v", report)
	}
	got := b.do(http.MethodGet, "/api/why?resource=pods&namespace=default&name=absent", "")
	if got.StatusCode != http.StatusBadRequest || !strings.Contains(got.text, "does not exist") {
		t.Errorf("an absent pod: %s %s", got.Status, got.text)
	}
}

func TestKindsAreThoseOfTheServer(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	var kinds []struct {
		Group, Version, Kind, Resource string
		Namespaced                     bool
		Verbs, ShortNames              []string
	}
	w.signInByToken(readerToken).get("/api/kinds", &kinds)
	found := 0
	for _, k := range kinds {
		if k.Resource == "deployments" && k.Group == "apps" {
			found++
			if k.Kind != "Deployment" || k.Version != "v1" || !k.Namespaced || !slices.Contains(k.Verbs, "watch") ||
				!slices.Equal(k.ShortNames, []string{"deploy"}) {
				t.Errorf("%+v", k)
			}
		}
	}
	if found != 1 {
		t.Errorf("deployments occur %d times", found)
	}
}
