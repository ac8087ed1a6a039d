package proxy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"clusterctl/daemons/proxy/rules"
)

// A load balancer gets no positive health check from a machine whose last endpoint is terminating.
// Proves S29.
func TestHealthChecksReportLocalEndpoints(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	ln.Close()
	h := healthServers{log: slog.New(slog.DiscardHandler)}
	defer h.close()
	ask := func() (status, endpoints int) {
		t.Helper()
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var state healthState
		if err := json.NewDecoder(r.Body).Decode(&state); err != nil || state.Service.Name != "web" ||
			state.Service.Namespace != "shop" {
			t.Errorf("answer %+v, %v", state, err)
		}
		return r.StatusCode, state.LocalEndpoints
	}
	for _, c := range []struct{ ready, status int }{{2, http.StatusOK}, {0, http.StatusServiceUnavailable}} {
		h.setService("shop/web", []rules.Port{
			{Namespace: "shop", Service: "web", Name: "http", HealthPort: port, ReadyLocal: c.ready},
			{Namespace: "shop", Service: "web", Name: "https", HealthPort: port},
		})
		h.setService("shop/other", []rules.Port{{Namespace: "shop", Service: "other", Name: "http", ReadyLocal: 7}})
		h.serve()
		if status, endpoints := ask(); status != c.status || endpoints != c.ready {
			t.Errorf("with %d ready: %d, %d", c.ready, status, endpoints)
		}
	}
	h.setService("shop/web", nil)
	h.serve()
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		c.Close()
		t.Error("the port still answers when the service is gone")
	}
}
