package kubelet

import (
	"net/http/httptest"
	"testing"
)

// S23: which right on a node a path stands for. Who may only read runs nothing, whatever method a WebSocket begins with.
func TestPathsOfTheKubeletStandForRights(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/metrics", "get metrics"},
		{"GET", "/metrics/resource", "get metrics"},
		{"GET", "/metricsx", "get proxy"},
		{"GET", "/stats/summary", "get stats"},
		{"POST", "/stats/summary", "create stats"},
		{"GET", "/logs/", "get log"},
		{"GET", "/healthz", "get healthz"},
		{"GET", "/healthz/syncloop", "get healthz"},
		{"GET", "/pods", "get pods"},
		{"GET", "/configz", "get configz"},
		{"GET", "/containerLogs/a/b/c", "get proxy"},
		{"GET", "/exec/a/b/c", "create proxy"},
		{"POST", "/exec/a/b/c", "create proxy"},
		{"GET", "/attach/a/b/c", "create proxy"},
		{"GET", "/portForward/a/b", "create proxy"},
		{"POST", "/run/a/b/c", "create proxy"},
		{"GET", "/%65xec/a/b/c", "create proxy"},
	} {
		verb, subresource := attributes(httptest.NewRequest(c.method, "https://n"+c.path, nil))
		if is := verb + " " + subresource; is != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, is, c.want)
		}
	}
}
