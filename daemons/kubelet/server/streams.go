package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	_, c, err := s.findContainer(r, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	q := r.URL.Query()
	to, err := s.Runtime.Exec(r.Context(), &criapi.ExecRequest{
		ContainerId: c.ID, Cmd: q["command"], Tty: isSet(q, "tty"), Stdin: isSet(q, "input", "stdin"),
		Stdout: isSet(q, "output", "stdout"),
		Stderr: isSet(q, "error", "stderr") && !isSet(q, "tty"),
	})
	s.proxyStream(w, r, to, err)
}

func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	_, c, err := s.findContainer(r, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	q := r.URL.Query()
	to, err := s.Runtime.Attach(r.Context(), &criapi.AttachRequest{
		ContainerId: c.ID, Tty: isSet(q, "tty"), Stdin: isSet(q, "input", "stdin"),
		Stdout: isSet(q, "output", "stdout"),
		Stderr: isSet(q, "error", "stderr") && !isSet(q, "tty"),
	})
	s.proxyStream(w, r, to, err)
}

func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request) {
	p, err := s.findPod(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	boxes, err := s.Runtime.ListPodSandbox(r.Context(), &criapi.PodSandboxFilter{
		LabelSelector: map[string]string{cri.LabelPodUID: string(p.UID)},
		State:         &criapi.PodSandboxStateValue{State: criapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil || len(boxes) == 0 {
		http.Error(w, fmt.Sprintf("pod %s has no running sandbox", p.Namespace+"/"+p.Name), http.StatusNotFound)
		return
	}
	var ports []int32
	for _, s := range r.URL.Query()["port"] {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil {
			ports = append(ports, int32(n))
		}
	}
	to, err := s.Runtime.PortForward(r.Context(), &criapi.PortForwardRequest{PodSandboxId: boxes[0].Id, Port: ports})
	s.proxyStream(w, r, to, err)
}

// isSet reports whether one of the query parameters is set. Upstream has two names for each. As everywhere in the API,
// any value means true except "0" and "false" in any case.
func isSet(q url.Values, names ...string) bool {
	for _, n := range names {
		if v := q[n]; len(v) > 0 && v[0] != "0" && !strings.EqualFold(v[0], "false") {
			return true
		}
	}
	return false
}

// proxyStream connects the client with the runtime's streaming server. The upgrade and all following bytes pass between
// client and runtime.
func (s *Server) proxyStream(w http.ResponseWriter, r *http.Request, to string, err error) {
	if err != nil {
		http.Error(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	target, err := url.Parse(to)
	if err != nil {
		http.Error(w, "the runtime's streaming address is invalid", http.StatusInternalServerError)
		return
	}
	backend, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(r.Context(), "tcp", target.Host)
	if err != nil {
		http.Error(w, fmt.Sprintf("reach the runtime's streaming server: %v", err), http.StatusBadGateway)
		return
	}
	defer backend.Close()
	out := r.Clone(r.Context())
	out.URL, out.Host, out.RequestURI = target, target.Host, ""
	out.Header.Del("Authorization")
	// Write keeps the Connection header, which is part of the upgrade.
	if err := out.Write(backend); err != nil {
		http.Error(w, fmt.Sprintf("pass the request to the runtime: %v", err), http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be upgraded", http.StatusInternalServerError)
		return
	}
	defer client.Close()
	_ = client.SetDeadline(time.Time{})
	defer context.AfterFunc(r.Context(), func() { _, _ = client.Close(), backend.Close() })()
	// A client that leaves a stream idle loses it after the configured time.
	up, down := io.Reader(buffered), io.Reader(backend)
	if d := s.File.StreamingConnectionIdleTimeout.Duration; d > 0 {
		idle := time.AfterFunc(d, func() { _, _ = client.Close(), backend.Close() })
		defer idle.Stop()
		up, down = &activeReader{buffered, idle, d}, &activeReader{backend, idle, d}
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(backend, up)
		closeWrite(backend)
		// Drain what the client still sends. Closing a connection with unread bytes resets it, and the client would
		// lose the last output.
		_, _ = io.Copy(io.Discard, buffered)
	})
	_, _ = io.Copy(client, down)
	closeWrite(client)
	_ = client.SetReadDeadline(time.Now().Add(closeTimeout))
	both.Wait()
}

// activeReader postpones the idle timeout of a stream whenever data arrives.
type activeReader struct {
	io.Reader
	idle    *time.Timer
	timeout time.Duration
}

func (b *activeReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		b.idle.Reset(b.timeout)
	}
	return n, err
}

// closeTimeout is how long a client may take to close its side after the runtime has closed its own.
const closeTimeout = 5 * time.Second

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
