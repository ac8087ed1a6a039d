package run

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthEndpointsMatchUpstream(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	env.Health.AddReady("store", func() error { return errors.New("it does not answer") })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":              {200, "ok"},
		"/livez?verbose":      {200, "[+]ping ok\nlivez check passed\n"},
		"/livez/ping?verbose": {200, "ok"},
		"/livez/nothing":      {404, "404 page not found\n"},
		"/readyz": {500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check " +
			"failed\n"},
		"/readyz/store":                 {500, "internal server error: reason withheld\n"},
		"/readyz?exclude=store":         {200, "ok"},
		"/readyz?verbose&exclude=store": {200, "[+]ping ok\n[+]store excluded: ok\nreadyz check passed\n"},
		"/livez?verbose&exclude=b&exclude=a": {200, "[+]ping ok\nwarn: some health checks cannot be excluded: " +
			"no matches for \"a\",\"b\"\nlivez check passed\n"},
		"/readyz?exclude=b&exclude=ping&verbose=": {500, "[+]ping excluded: ok\n[-]store failed: reason " +
			"withheld\nwarn: some health checks cannot be excluded: no matches for \"b\"\nreadyz check failed\n"},
		"/readyz/store?authorized": {500, "internal server error: it does not answer\n"},
		"/readyz?authorized":       {500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		env.Handler().ServeHTTP(w, WithReasons(r, func() bool { return r.URL.Query().Has("authorized") }))
		if w.Code != want.code || w.Body.String() != want.text {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, want.code, want.text)
		}
	}
}

// For kube-prometheus's rules, a daemon without /metrics/slis is unreachable.
func TestHealthCheckMetricsExistFromTheStart(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	var failure error
	env.Health.AddReady("store", func() error { return failure })
	scrape := func() string {
		t.Helper()
		w := httptest.NewRecorder()
		env.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	contains := func(text string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s is missing:\n%s", line, text)
			}
		}
	}
	contains(scrape(), `kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthcheck{name="ping",type="readyz"} 1`, `kubernetes_healthcheck{name="store",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="store",status="success",type="readyz"} 1`)
	failure = errors.New("it does not answer")
	for _, path := range []string{"/readyz", "/readyz/store", "/healthz/ping", "/readyz/none"} {
		env.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	text := scrape()
	contains(text, `kubernetes_healthcheck{name="store",type="readyz"} 0`,
		`kubernetes_healthchecks_total{name="store",status="error",type="readyz"} 3`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`)
	if strings.Contains(text, "none") {
		t.Error("a check that does not exist has a series")
	}
}

func TestMoreMetricsAreServed(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	env.MoreMetrics = map[string]http.Handler{
		"/metrics/resources": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }),
	}
	for path, want := range map[string]string{"/metrics/resources": "here", "/metrics/others": "404 page not found\n"} {
		w := httptest.NewRecorder()
		env.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Body.String() != want {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
	for path, want := range map[string]bool{"/metrics": true, "/metrics/slis": true, "/metrics/resources": true,
		"/metricsx": false, "/livez": false} {
		if isMetricsPath(path) != want {
			t.Errorf("%s is guarded as metrics are: %t", path, !want)
		}
	}
}

func TestFeatureMetrics(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	env.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if want := `kubernetes_feature_enabled{name="NativeHistograms",stage="BETA"} 1`; !strings.Contains(w.Body.String(),
		want) {
		t.Errorf("%s is missing", want)
	}
}
