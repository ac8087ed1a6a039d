package apiserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/store/memory"
)

// adminOnly authenticates only the token "admin".
type adminOnly struct{}

// Authenticate implements api.Authenticator.
func (adminOnly) Authenticate(r *http.Request) (api.User, bool, error) {
	if r.Header.Get("Authorization") == "Bearer admin" {
		return api.User{Name: "admin"}, true, nil
	}
	return api.User{}, false, errors.New("unauthenticated")
}

// Authorize implements api.Authorizer.
func (adminOnly) Authorize(_ context.Context, _ api.User, r api.Request) (api.Decision, string, error) {
	if r.Namespace == "forbidden" {
		return api.NoOpinion, "", nil
	}
	return api.Allow, "", nil
}

// The labels of metrics have closed sets of values. Unauthenticated clients, and users with made-up paths, create no
// series.
// Proves S33.
func TestClientsCannotCreateMetricLabels(t *testing.T) {
	s := memory.New()
	defer s.Close()
	var metrics *prometheus.Registry
	cfg := startConfig(t, s, func(o *apiserver.Options) {
		o.Access.Authenticators, o.Access.Authorizers = []api.Authenticator{adminOnly{}}, []api.Authorizer{adminOnly{}}
		metrics = o.Env.Metrics
	})
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	} //nolint:gosec // its certificate is made up
	defer transport.CloseIdleConnections()
	ask := func(method, path, token string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, cfg.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	sendHostile(0, ask)
	_, before := gatherSeries(t, metrics)
	for i := range 30 {
		sendHostile(i+1, ask)
	}
	all, after := gatherSeries(t, metrics)
	if after != before {
		t.Errorf("%d series became %d", before, after)
	}
	for name := range all {
		if strings.Contains(name, "apiserver_request_total") && strings.Contains(name, "code=401") &&
			!strings.Contains(name, "resource= ") {
			t.Errorf("the metrics name the path of a refused request: %s", name)
		}
	}
	if code := ask("GET", "/api/v1/namespaces/default", "admin"); code != 200 {
		t.Fatalf("a read is answered with %d", code)
	}
	all, _ = gatherSeries(t, metrics)
	for _, name := range []string{
		"apiserver_request_total code=200 component=apiserver dry_run= group= resource=namespaces scope=resource " +
			"subresource= verb=GET version=v1",
		"apiserver_request_duration_seconds component=apiserver dry_run= group= resource=namespaces scope=resource " +
			"subresource= verb=GET version=v1",
		"apiserver_request_sli_duration_seconds component=apiserver group= resource=namespaces scope=resource " +
			"subresource= verb=GET version=v1",
		"apiserver_request_total code=401 component=apiserver dry_run= group= resource= scope= subresource= " +
			"verb=other version=",
		"apiserver_current_inflight_requests request_kind=mutating", "apiserver_current_inflight_requests " +
			"request_kind=readOnly",
		"apiserver_client_certificate_expiration_seconds", "apiserver_storage_objects resource=namespaces",
	} {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

// sendHostile sends requests whose paths, methods and tokens are made up. i makes them unique.
func sendHostile(i int, ask func(method, path, token string) int) {
	long := strings.Repeat("x", 2000)
	for _, token := range []string{"", "wrong", "admin"} {
		for _, path := range []string{
			fmt.Sprintf("/%d%s", i, long), fmt.Sprintf("/api/v1/%s%d", long, i),
			fmt.Sprintf("/apis/g%d/v%d/r%d", i, i, i),
			fmt.Sprintf("/api/v1/namespaces/n/pods/p/sub%d%%ff%%fe", i),
			fmt.Sprintf("/api/v1/namespaces/n/configmaps/%%ff%d", i),
			fmt.Sprintf("/healthz/%d", i), fmt.Sprintf("/api/v1/pods?dryRun=%d", i),
			fmt.Sprintf("/api/v1/namespaces/forbidden/secrets/%d", i),
		} {
			for _, method := range []string{"GET", "DELETE", fmt.Sprintf("M%d", i)} {
				ask(method, path, token)
			}
		}
	}
}

// gatherSeries returns the values of all series by their names and labels.
func gatherSeries(t *testing.T, metrics prometheus.Gatherer) (all map[string]int, series int) {
	t.Helper()
	gathered, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]int{}
	for _, f := range gathered {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			all[name] = int(m.GetCounter().GetValue())
			series++
		}
	}
	return all, series
}
