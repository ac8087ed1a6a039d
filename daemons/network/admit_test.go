package network

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"clusterctl/daemons/api/admitpod"
)

// crowdedListener is a listener whose first Accept calls fail because of a lack of file descriptors.
type crowdedListener struct {
	net.Listener
	failures atomic.Int32
}

func (c *crowdedListener) Accept() (net.Conn, error) {
	if c.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: syscall.EMFILE}
	}
	return c.Listener.Accept()
}

// The daemon keeps running, because it also maintains the rules of the node.
func TestTheSocketRecoversFromALackOfFileDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	ln, err := openSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	full := &crowdedListener{Listener: ln}
	full.failures.Store(3)
	a := admissions{byUID: map[string]*admission{}, changed: func(string) {}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.serve(ctx, full, slog.New(slog.DiscardHandler)) }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	var answer admitpod.Answer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil || answer.Error == "" {
		t.Errorf("the answer to a request without a pod is %+v, %v", answer, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
