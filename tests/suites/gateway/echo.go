package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

// echoServer replaces a backend of the suite, whose image is only available from its registry. It is one server for
// each pod, at the pod's address, that answers with the properties of the request in the suite's format.
type echoServer struct {
	namespace, pod, ip string
	servers            []*http.Server
}

// echoAnswer is the body of an answer.
type echoAnswer struct {
	Path      string              `json:"path"`
	Host      string              `json:"host"`
	Method    string              `json:"method"`
	Proto     string              `json:"proto"`
	Headers   map[string][]string `json:"headers"`
	HTTPPort  string              `json:"httpPort"`
	Namespace string              `json:"namespace"`
	Ingress   string              `json:"ingress"`
	Service   string              `json:"service"`
	Pod       string              `json:"pod"`
}

// start listens on port 3000 for HTTP/1 and WebSockets, and on port 3001 for HTTP/2 without TLS.
func (e *echoServer) start() error {
	paths := http.NewServeMux()
	paths.Handle("/ws", websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }))
	paths.HandleFunc("/", e.answer)
	// The mux would redirect a path with two slashes, but the suite's servers do not.
	whole := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.ReplaceAll(r.URL.Path, "//", "/")
		paths.ServeHTTP(w, r)
	})
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	only2 := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			http.Error(w, "HTTP/2 is expected", http.StatusBadRequest)
			return
		}
		e.answer(w, r)
	})
	for port, s := range map[string]*http.Server{"3000": {Handler: whole}, "3001": {Handler: only2, Protocols: &both}} {
		ln, err := net.Listen("tcp", net.JoinHostPort(e.ip, port))
		if err != nil {
			return err
		}
		e.servers = append(e.servers, s)
		go func() {
			if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				panic(err)
			}
		}()
	}
	return nil
}

func (e *echoServer) stop() {
	for _, s := range e.servers {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = s.Shutdown(ctx)
		cancel()
	}
}

func (e *echoServer) answer(w http.ResponseWriter, r *http.Request) {
	if text := r.URL.Query().Get("delay"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	for _, list := range r.Header["X-Echo-Set-Header"] {
		for _, field := range strings.Split(list, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), ":")
			if before := w.Header()[name]; len(before) > 0 {
				value = before[0] + "," + strings.TrimSpace(value)
			}
			w.Header()[name] = []string{value}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(echoAnswer{
		Path: r.RequestURI, Host: r.Host, Method: r.Method, Proto: r.Proto, Headers: r.Header, HTTPPort: "3000",
		Namespace: e.namespace, Pod: e.pod,
	})
}

// echoServers are the servers of all running pods, by the pods' names.
type echoServers struct {
	mu  sync.Mutex
	all map[string]*echoServer
}

// set starts or moves the server of a pod to an address. If the address is empty, the server stops.
func (all *echoServers) set(namespace, pod, ip string) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	key := namespace + "/" + pod
	old := all.all[key]
	if old != nil && old.ip == ip {
		return nil
	}
	if old != nil {
		delete(all.all, key)
		old.stop()
	}
	if ip == "" {
		return nil
	}
	e := &echoServer{namespace: namespace, pod: pod, ip: ip}
	all.all[key] = e
	return e.start()
}
