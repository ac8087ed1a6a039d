package apiserver

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"clusterctl/daemons/run"
)

// S12: where probes need no credentials there is health, and nothing else.
func TestProbesAreAnsweredAboutHealthAlone(t *testing.T) {
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	env.Health.Ready("store", func() error { return errors.New("it does not answer") })
	s := &Server{own: env.Handler()}
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 500, "/healthz": 200, "/livez/ping": 200, "/readyz?verbose": 500, "/livez/nothing": 404,
		"/": 404, "/metrics": 404, "/api/v1/namespaces": 404, "/version": 404, "/livezz": 404, "/debug/pprof/": 404,
	} {
		w := httptest.NewRecorder()
		s.healthz().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
