package why

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// wholeText returns everything that a report says.
func wholeText(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, r, 0); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// Pods that the caller may not list may exist: no claim is freed by hand, no rollout is called free of faults, and no
// pod is said to be gone.
func TestPodsThatCannotBeListedAreNotAbsent(t *testing.T) {
	d, s := newDeployment("web")
	job := &batchv1.Job{ObjectMeta: newMeta("once")}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue,
		Reason: "BackoffLimitExceeded"}}
	clients, client := newTestClients("", d, s, job, newNode("a"),
		deleted(newClaim("data", "fast"), "kubernetes.io/pvc-protection"))
	forbid(&client.Fake, "list", "pods")
	for object, want := range map[string]string{
		"pvc/data":       "a pod may still use it",
		"deployment/web": "its pods could not all be read",
		"rs/web-1":       "its pods could not all be read",
		"job/once":       "its pods could not all be read",
	} {
		text := wholeText(t, explain(t, clients, object))
		if !strings.Contains(text, want) || !strings.Contains(text, "kubectl auth can-i list pods -n shop") {
			t.Errorf("%s: %s", object, text)
		}
		for _, wrong := range []string{"kubectl patch", "reports a fault", "are gone"} {
			if strings.Contains(text, wrong) {
				t.Errorf("%s: %q in %s", object, wrong, text)
			}
		}
	}
}

// Removing a finalizer of Kubernetes by hand loses data. Removing all finalizers is no remedy for one.
func TestOnlyOneForeignFinalizerIsRemovedByHand(t *testing.T) {
	for finalizers, isRemoved := range map[string]bool{
		"example.com/a":                                  true,
		"example.com/a example.com/b":                    false,
		"kubernetes.io/pvc-protection":                   false,
		"kubernetes.io/pv-protection":                    false,
		"batch.kubernetes.io/job-tracking example.com/a": false,
		"external-attacher/csi-example":                  false,
	} {
		clients, _ := newTestClients("", []runtime.Object{deleted(newClaim("data", "fast"),
			strings.Fields(finalizers)...)}...)
		text := wholeText(t, explain(t, clients, "pvc/data"))
		if strings.Contains(text, "kubectl patch") != isRemoved || !strings.Contains(text, "still terminating") {
			t.Errorf("%s: %s", finalizers, text)
		}
	}
}

// A kubelet that does not answer delays one request, and not all that come after it.
func TestARequestThatHangsDoesNotHideTheRest(t *testing.T) {
	if got := bounded(&rest.Config{}).Timeout; got != requestTimeout || requestTimeout >= deadline/2 {
		t.Errorf("a request may take %v", got)
	}
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-hang
	}))
	defer server.Close()
	defer close(hang)
	slow, err := New(&rest.Config{Host: server.URL, Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	clients, _ := newTestClients("", newPod("web", crashing("Error", 1)), newNode("a"))
	clients.Logs = slow.Logs
	report := explain(t, clients, "pod/web")
	if !strings.Contains(report.Verdict, "exit code 1") || len(report.Unseen) != 1 ||
		!strings.Contains(report.Unseen[0], "did not answer in time") {
		t.Errorf("%+v", report)
	}
}
