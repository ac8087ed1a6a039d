package top

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"clusterctl/kube/kubernetes"
)

// serveAnswers returns a client of a server with an answer for each path and query.
func serveAnswers(t *testing.T, answers map[string]string) rest.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.RequestURI()]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"refused","code":403}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient()
}

const api = "/apis/metrics.k8s.io/v1beta1"

func TestNodesAreShownWithTheirCapacityAndTheLastHour(t *testing.T) {
	client := serveAnswers(t, map[string]string{
		api + "/nodes": `{"items":[{"metadata":{"name":"a"},"usage":{"cpu":"500m","memory":"64Mi"}},
			{"metadata":{"name":"b"},"usage":{"cpu":"1500m","memory":"1Gi"}}]}`,
		"/api/v1/nodes": `{"items":[{"metadata":{"name":"a"},"status":{"allocatable":{"cpu":"2","memory":"128Mi"}}},
			{"metadata":{"name":"c"}}]}`,
		api + "/nodes/b?history=true": `{"kind":"MetricsHistory","series":[{"name":"cpu","points":[]}]}`,
		api + "/nodes/a?history=true": `{"kind":"MetricsHistory","series":[{"name":"cpu","points":[
			[60,0],[3540,2.0],[3600,0.5]]},{"name":"memory","points":[[60,1]]}]}`,
	})
	report, err := Nodes(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Print(&out, report); err != nil {
		t.Fatal(err)
	}
	want := `NAME  CPU    CPU%  LAST HOUR             MEMORY  MEMORY%
b     1500m  ?                           1024Mi  ?
a     500m   25%   ▁                  █  64Mi    50%
not shown: node c: the metrics server knows nothing of it
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Without a history, and with an unexpected answer, the present usage is shown.
func TestPodsAreShownWithoutAHistory(t *testing.T) {
	client := serveAnswers(t, map[string]string{
		api + "/namespaces/shop/pods": `{"items":[{"metadata":{"name":"web\u001b","namespace":"shop"},"containers":[
			{"usage":{"cpu":"1m","memory":"1Mi"}},{"usage":{"cpu":"2m","memory":"2Mi"}}]}]}`,
	})
	report, err := Pods(t.Context(), client, "shop")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Print(&out, report); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `shop       web\x1b  3m              3Mi`) ||
		!strings.Contains(got, "not shown: the last hour: ") {
		t.Error(got)
	}
	if _, err := Pods(t.Context(), client, "secret"); err == nil || !strings.Contains(err.Error(), "metrics server") {
		t.Error(err)
	}
}
