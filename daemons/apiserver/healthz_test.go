package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/identity"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/run"
)

// The health check listener without credentials serves only health checks.
// Proves S12.
func TestHealthListenerServesOnlyHealth(t *testing.T) {
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	env.Health.AddReady("store", func() error { return errors.New("it does not answer") })
	s := pages{status: env.Handler()}
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 500, "/healthz": 200, "/livez/ping": 200, "/readyz?verbose": 500,
		"/livez/nothing": 404,
		"/":              404, "/metrics": 404, "/api/v1/namespaces": 404, "/version": 404, "/livezz": 404,
		"/livez/../metrics": 404, "/debug/pprof/": 404,
	} {
		w := httptest.NewRecorder()
		s.health().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// Every client learns that a check fails. Only clients that may read the path learn the reason.
// Proves S12.
func TestHealthReasonsNeedAuthorization(t *testing.T) {
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	env.Health.AddReady("store", func() error { return errors.New("10.0.0.7 does not answer") })
	for name, c := range map[string]struct {
		authorizer []api.Authorizer
		want       string
	}{
		"authorized": {[]api.Authorizer{blockingAuthorizer{}}, "internal server error: 10.0.0.7 does not answer\n"},
		"anybody":    {[]api.Authorizer{undecidedAuthorizer{}}, "internal server error: reason withheld\n"},
	} {
		s := &Server{pages: pages{status: env.Handler()}, options: Options{Access: Access{Authorizers: c.authorizer}}}
		s.identity = identity.New(identity.Config{Authorizers: c.authorizer})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/readyz/store", nil)
		s.pages.status.ServeHTTP(w,
			s.withReasons(&request.Request{HTTP: r, Request: api.Request{Verb: "get", Path: r.URL.Path}}))
		if w.Body.String() != c.want {
			t.Errorf("%s: %q, want %q", name, w.Body, c.want)
		}
	}
}

// undecidedAuthorizer has no opinion on any request.
type undecidedAuthorizer struct{}

func (undecidedAuthorizer) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.NoOpinion, "", nil
}
