package apiserver

import (
	"net/http"

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/run"
)

// pages serves what every daemon serves about itself.
type pages struct {
	status http.Handler // health and metrics
	info   http.Handler // pages about the server itself
}

// health returns a handler that serves only health checks.
func (p pages) health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.IsHealthPath(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		p.status.ServeHTTP(w, r)
	})
}

// withReasons returns a health check request. Every user gets the result. The reasons for a failure are shown only to
// users that are authorized to read the path.
func (s *Server) withReasons(q *request.Request) *http.Request {
	return run.WithReasons(q.HTTP, func() bool {
		return doors{s}.Authorize(q.HTTP.Context(), q.User, q.Request) == nil
	})
}
