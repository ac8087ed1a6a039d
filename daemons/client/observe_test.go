package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes"
)

func TestRequestsAreCountedByStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/cut") {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], " +
		"clusters: [{name: c, cluster: {server: '" + server.URL + "'}}]}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	for range 2 { // a daemon may have several clients
		cfg, err := Config(Options{Kubeconfig: kubeconfig, Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		api := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("a")
		if _, err := api.Get(t.Context(), "b", metav1.GetOptions{}); err == nil {
			t.Error("a refused request has no error")
		}
		if err := api.Delete(t.Context(), "cut", metav1.DeleteOptions{}); err == nil {
			t.Error("a request that is not answered has no error")
		}
	}
	host := strings.TrimPrefix(server.URL, "http://")
	want := `
# HELP rest_client_requests_total Requests to the API server, by what it answered; <error> where it did not.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="403",host="` + host + `",method="GET"} 2
rest_client_requests_total{code="<error>",host="` + host + `",method="DELETE"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "rest_client_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "rest_client_request_duration_seconds"); err != nil || n != 2 {
		t.Errorf("%d series of durations, %v; want one of each verb", n, err)
	}
}

func TestLeadershipIsAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	leads := func(want string) {
		t.Helper()
		text := "# HELP leader_election_master_status 1 while this process holds a lease, 0 while it waits for it.\n" +
			"# TYPE leader_election_master_status gauge\nleader_election_master_status{name=\"x\"} " + want + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text),
			"leader_election_master_status"); err != nil {
			t.Error(err)
		}
	}
	active, err := ObserveLeading(registry, "x", func(context.Context) error { leads("1"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	leads("0")
	if err := active(t.Context()); err != nil {
		t.Error(err)
	}
	leads("0")
	if _, err := ObserveLeading(registry, "y", active); err != nil { // a daemon may be a candidate for several leases
		t.Error(err)
	}
}
