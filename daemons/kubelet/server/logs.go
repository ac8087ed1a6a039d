package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/logs"
)

func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	q, values := logs.Options{Tail: -1, Limit: -1}, r.URL.Query()
	q.Follow, q.Timestamps = isSet(values, "follow"), isSet(values, "timestamps")
	previous := isSet(values, "previous")
	number := func(name string, at *int64) bool {
		if text := values.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				http.Error(w, "invalid "+name, http.StatusBadRequest)
				return false
			}
			*at = n
		}
		return true
	}
	seconds := int64(-1)
	if !number("tailLines", &q.Tail) || !number("limitBytes", &q.Limit) || !number("sinceSeconds", &seconds) {
		return
	}
	if seconds >= 0 {
		q.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if text := values.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			http.Error(w, "invalid sinceTime", http.StatusBadRequest)
			return
		}
		q.Since = at
	}
	switch values.Get("stream") {
	case "Stdout":
		q.Stream = "stdout"
	case "Stderr":
		q.Stream = "stderr"
	}
	p, c, err := s.findContainer(r, previous)
	if err != nil && p != nil {
		if before, ok := removedContainer(p, r.PathValue("container"), previous); ok {
			c, err = before, nil
		}
	}
	if err != nil {
		code := http.StatusBadRequest
		if p == nil {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	path := s.Logs.Path(p, c.Name, c.Attempt)
	if log, err := s.Logs.Open(path); err == nil {
		log.Close()
	} else {
		http.Error(w, fmt.Sprintf("unable to retrieve container logs for "+
			"%s://%s", s.RuntimeName, c.ID), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Transfer-Encoding", "chunked")
	out := &flusher{w: w}
	if q.Follow {
		out.Flush()
	}
	ended := func() bool {
		status, err := s.Runtime.ContainerStatus(r.Context(), c.ID)
		return err != nil || status.State != criapi.ContainerState_CONTAINER_RUNNING
	}
	if err := s.Logs.Write(r.Context(), path, q, ended, out); err != nil {
		s.Log.Debug("serve log", "path", path, "error", err)
	}
}

// flusher flushes the response whenever there is nothing more to write for the moment.
type flusher struct{ w http.ResponseWriter }

func (f *flusher) Write(b []byte) (int, error) { return f.w.Write(b) }

// Flush sends what was written.
func (f *flusher) Flush() { _ = http.NewResponseController(f.w).Flush() }

var _ io.Writer = (*flusher)(nil)
