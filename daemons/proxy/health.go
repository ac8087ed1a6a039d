package proxy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"clusterctl/daemons/proxy/rules"
)

// healthServers responds to health checks of load balancers on the services' healthCheckNodePort: does this machine
// have endpoints of the service? Only ready endpoints count. A terminating endpoint still serves connections, but
// should get no new ones.
type healthServers struct {
	log     *slog.Logger
	ports   map[string][]rules.Port // ports with a health check, by service
	servers map[uint16]*healthServer
}

// setService sets the ports of a service. ports is empty if the service was deleted.
func (h *healthServers) setService(service string, ports []rules.Port) {
	delete(h.ports, service)
	for _, p := range ports {
		if p.HealthPort != 0 {
			if h.ports == nil {
				h.ports = map[string][]rules.Port{}
			}
			h.ports[service] = append(h.ports[service], p)
		}
	}
}

type healthServer struct {
	http.Server
	state atomic.Pointer[healthState]
}

// healthState is the response of a server, in upstream's format.
type healthState struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// healthStates returns the responses by health check port. If a service has several ports, the one with the most
// endpoints counts.
func healthStates(ports []rules.Port) map[uint16]*healthState {
	states := map[uint16]*healthState{}
	for i := range ports {
		p := &ports[i]
		if p.HealthPort == 0 {
			continue
		}
		s := states[p.HealthPort]
		if s == nil {
			s = &healthState{ServiceProxyHealthy: true}
			s.Service.Namespace, s.Service.Name = p.Namespace, p.Service
			states[p.HealthPort] = s
		}
		s.LocalEndpoints = max(s.LocalEndpoints, p.ReadyLocal)
	}
	return states
}

// serve starts and stops servers according to the ports.
func (h *healthServers) serve() {
	var ports []rules.Port
	for _, list := range h.ports {
		ports = append(ports, list...)
	}
	states := healthStates(ports)
	for port, server := range h.servers {
		if states[port] == nil {
			_ = server.Close()
			delete(h.servers, port)
		}
	}
	for port, state := range states {
		server := h.servers[port]
		if server == nil {
			// If listening fails, the next round tries again.
			ln, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
			if err != nil {
				h.log.Warn("answer health checks of load balancers", "service",
					state.Service.Namespace+"/"+state.Service.Name, "error", err)
				continue
			}
			server = &healthServer{}
			server.Handler, server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes = server, 5*time.Second,
				30*time.Second, 8<<10
			if h.servers == nil {
				h.servers = map[uint16]*healthServer{}
			}
			h.servers[port] = server
			server.state.Store(state)
			go func() { _ = server.Serve(ln) }() // it returns after Close
		}
		server.state.Store(state)
	}
}

func (h *healthServers) close() {
	for _, server := range h.servers {
		_ = server.Close()
	}
}

func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	state := s.state.Load()
	body, err := json.Marshal(state)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(state.LocalEndpoints))
	if state.LocalEndpoints == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "%s", body)
}
