package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func explain(t *testing.T, c Clients, object string) *Report {
	t.Helper()
	ref, err := Parse(object, testNamespace)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Explain(t.Context(), c, ref)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestHealthyObjectsAreReportedAsHealthy(t *testing.T) {
	d, s := newDeployment("web")
	d.Status.AvailableReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 2, 2, 2
	s.Status.AvailableReplicas = 2
	late := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "disks.example",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	bound := newClaim("data", "late")
	bound.Status.Phase, bound.Spec.VolumeName = corev1.ClaimBound, "disk-1"
	clients, _ := newTestClients("", d, s, newPod("web", readyPod), newNode("a"), newService("web"), newSlice("web",
		"10.0.0.7"), bound, late, newClaim("next", "late"), newPod("user", waitingFor("", ""), withClaim("next")),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}})
	for object, state := range map[string]string{
		"pod/web": "runs and is ready", "deployment/web": "has 2 of 2 pods " +
			"available", "rs/web-1": "has 2 of 2 pods available",
		"service/web": "has 1 endpoint that is ready", "pvc/data": "is bound to volume disk-1", "node/a": "is ready",
		"pvc/next": "waits until a pod that uses it is scheduled", "namespace/shop": "is active",
	} {
		report := explain(t, clients, object)
		want := fmt.Sprintf("%s is as it should be: it %s.", report.Object, state)
		if !report.Healthy || report.Verdict != want || len(report.Chain)+len(report.Remedies) > 0 {
			t.Errorf("%s: %+v, want %q", object, report, want)
		}
	}
}

func TestAnObjectThatDoesNotExistIsAnError(t *testing.T) {
	clients, _ := newTestClients("")
	for _, k := range kinds() {
		ref := k.ref(testNamespace, "none")
		if _, err := Explain(t.Context(), clients, ref); err == nil || err.Error() != ref.String()+" does not exist" {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestNamesOfObjectsAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"pod/web": "Pod shop/web", "po/web": "Pod shop/web", "Deployment/web": "Deployment shop/web",
		"deployments.apps/web": "Deployment shop/web", "node/a": "Node a", "hpa/web": "HorizontalPodAutoscaler " +
			"shop/web",
	} {
		if ref, err := Parse(text, testNamespace); err != nil || ref.String() != want {
			t.Errorf("%s: %s, %v", text, ref, err)
		}
	}
	for _, text := range []string{"", "pod", "pod/", "/web", "pod/a/b", "widget/x", "pods.apps/x"} {
		if ref, err := Parse(text, testNamespace); err == nil {
			t.Errorf("%q names %s", text, ref)
		}
	}
	if _, err := Explain(t.Context(), Clients{}, Ref{Resource: "widgets", Name: "x"}); err == nil {
		t.Error("an unknown kind is explained")
	}
}

// forbid makes a fake refuse a verb for a resource.
func forbid(c *clienttesting.Fake, verb, resource string) {
	c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rights"))
	})
}

func TestWhatTheCallerMayNotReadIsListed(t *testing.T) {
	clients, client := newTestClients("", newPod("web", unscheduled("0/1 nodes are available: 1 Insufficient cpu.")),
		newNode("a"), newService("web"), newPod("idle"))
	for _, resource := range []string{"nodes", "events", "endpointslices"} {
		forbid(&client.Fake, "list", resource)
	}
	report := explain(t, clients, "pod/web")
	if want := "Pod shop/web is not scheduled because 0/1 nodes are available: 1 Insufficient " +
		"cpu."; report.Verdict != want {
		t.Errorf("verdict %q, want %q", report.Verdict, want)
	}
	for _, want := range []string{"nodes: forbidden", "events of namespace shop: forbidden"} {
		if !slices.Contains(report.Unseen, want) {
			t.Errorf("%q is not in %q", want, report.Unseen)
		}
	}
	// A list that could not be read is not an empty one.
	forbid(&client.Fake, "list", "pods")
	if report := explain(t, clients, "service/web"); !strings.Contains(report.Verdict, "has an unknown state") {
		t.Error(report.Verdict)
	}
	if report := explain(t, clients, "pod/idle"); !strings.Contains(report.Verdict, "its events could not be read") {
		t.Error(report.Verdict)
	}
	forbid(&client.Fake, "get", "pods")
	report = explain(t, clients, "pod/web")
	if want := "The state of Pod shop/web is unknown because you may not read it."; report.Verdict != want ||
		report.Healthy || len(report.Unseen) != 1 {
		t.Errorf("%+v", report)
	}
}

func TestTextsFromOutsideCannotControlTheTerminal(t *testing.T) {
	const attack = "\x1b[2J\x1b]0;owned\a\u202e\r\nNot seen:\n  - nothing\xff"
	hostile := newPod("web", crashing("Error", 1), ownedBy("ReplicaSet", "x; rm -rf ~ #"))
	hostile.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = attack
	clients, _ := newTestClients(attack, hostile, newPod("db", waitingFor("CreateContainerError", attack)),
		newNode("a"), newPod("old", unscheduled(attack)))
	for _, object := range []string{"pod/web", "pod/db", "pod/old"} {
		report := explain(t, clients, object)
		var out strings.Builder
		if err := Print(&out, report, 0); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\a\r\u202e") || strings.Contains(out.String(), "\xff") ||
			strings.Contains(out.String(), "\nNot seen:") {
			t.Errorf("%s:\n%q", object, out.String())
		}
		for _, m := range report.Remedies {
			if strings.Contains(m.Command, "rm -rf") && !strings.Contains(m.Command, "'replicaset/x; rm -rf ~ #'") {
				t.Errorf("a name is not quoted: %s", m.Command)
			}
		}
	}
}

func TestReportsAreLimited(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	var objects []runtime.Object
	p := newPod("web", unscheduled(long))
	for i := range 300 {
		objects = append(objects, newNode(fmt.Sprintf("n%d", i), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: fmt.Sprintf("k%d", i), Effect: corev1.TaintEffectNoSchedule}}
		}))
	}
	clients, client := newTestClients("", append(objects, p)...)
	report := explain(t, clients, "pod/web")
	if len(report.Chain) > maxSteps || len(report.Remedies) > maxRemedies || len(report.Unseen) > maxUnseen {
		t.Errorf("%d steps, %d remedies, %d unseen", len(report.Chain), len(report.Remedies), len(report.Unseen))
	}
	for _, s := range report.Chain {
		if len([]rune(s.Text)) > maxText || len([]rune(s.Evidence)) > maxEvidence {
			t.Errorf("a step has %d characters", len(s.Text))
		}
	}
	lists := map[string]int{}
	for _, a := range client.Actions() {
		if a.GetVerb() == "list" {
			lists[a.GetNamespace()+"/"+a.GetResource().Resource]++
		}
	}
	for what, n := range lists {
		if n > 1 {
			t.Errorf("%s was listed %d times", what, n)
		}
	}
	if lists["/nodes"] != 1 {
		t.Errorf("lists: %v", lists)
	}
}

func TestAReportIsOneScreenOfText(t *testing.T) {
	d, s := newDeployment("web")
	clients, _ := newTestClients("reading\nindexing", d, s, newPod("web-1-x", crashing("OOMKilled", 137),
		ownedBy("ReplicaSet", "web-1")), newNode("a"))
	clients.Logs = func(context.Context, *corev1.Pod, string, bool) ([]byte, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1-x", errors.New("no rights"))
	}
	var out strings.Builder
	if err := Print(&out, explain(t, clients, "deployment/web"), 100); err != nil {
		t.Fatal(err)
	}
	want := `Deployment shop/web has 0 of 2 pods available because node a ran out of memory and killed container
app, which has no memory limit.

Why:
  Deployment shop/web: It has 0 of 2 pods available. [status.availableReplicas]
  → ReplicaSet shop/web-1: It has 0 of 2 pods available. [status.availableReplicas]
  → Pod shop/web-1-x: It does not run. [status of the pod]
  → Node a ran out of memory and killed container app, which has no memory limit. It was restarted 4
    times. [status.containerStatuses[app].lastState.terminated]

What to do:
  - Raise the memory limit, or make the program use less.
    field: spec.template.spec.containers[app].resources.limits.memory of Deployment shop/web
      kubectl set resources -n shop deployment/web -c app --limits=memory=AMOUNT

Not seen:
  - log of container app of Pod shop/web-1-x: forbidden
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
