package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/why"
)

// servePods starts an API server that has two pods and refuses everything else. It returns a kubeconfig.
func servePods(t *testing.T) string {
	t.Helper()
	pods := map[string]*corev1.Pod{"done": {}, "gated": {}, "hostile": {}}
	pods["done"].Status.Phase = corev1.PodSucceeded
	pods["gated"].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	pods["hostile"].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/\x1b[2J"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		name, isPod := strings.CutPrefix(q.URL.Path, "/api/v1/namespaces/shop/pods/")
		var answer any
		switch p := pods[name]; {
		case p != nil:
			p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			p.Namespace, p.Name = "shop", name
			answer = p
		case isPod:
			answer = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}
			w.WriteHeader(http.StatusNotFound)
		default:
			answer = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: 403}
			w.WriteHeader(http.StatusForbidden)
		}
		if s, ok := answer.(*metav1.Status); ok {
			s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		}
		_ = json.NewEncoder(w).Encode(answer) // the client reports a torn answer
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: %q}}],
contexts: [{name: a, context: {cluster: a}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhyExitsWithTheStateOfTheObject(t *testing.T) {
	kubeconfig := servePods(t)
	for object, want := range map[string]struct {
		code      int
		out, errs string
	}{
		"pod/done":    {0, "Pod shop/done is as it should be: it has finished successfully.", ""},
		"pod/gated":   {2, "Pod shop/gated is not scheduled because its scheduling gates have not been removed", ""},
		"pod/none":    {1, "", "Error: Pod shop/none does not exist"},
		"pod/hostile": {2, `example.com/\x1b[2J`, ""},
		"svc/none":    {2, "The state of Service shop/none is unknown because you may not read it.", ""},
		"widget/x":    {1, "", "widget cannot be explained"},
	} {
		root := newRoot()
		var out, errs strings.Builder
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"why", "-n", "shop", "--kubeconfig", kubeconfig, object})
		code := runCommand(t.Context(), root)
		if code != want.code || !strings.Contains(out.String(), want.out) ||
			!strings.Contains(errs.String(), want.errs) {
			t.Errorf("%s: exit code %d\n%s%s", object, code, out.String(), errs.String())
		}
	}
}

func TestWhyPrintsTheReportAsJSON(t *testing.T) {
	root := newRoot()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"why", "-n", "shop", "-o", "json", "--kubeconfig", servePods(t), "pod/done"})
	if code := runCommand(t.Context(), root); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var report why.Report
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Healthy || report.Object.Resource != "pods" || !strings.Contains(out.String(), `"chain": []`) {
		t.Error(out.String())
	}
}

func TestKindsAreCompletedForWhy(t *testing.T) {
	if list := completeKinds("Po"); len(list) != 2 || list[0] != "pod/" || list[1] != "poddisruptionbudget/" {
		t.Error(list)
	}
}
