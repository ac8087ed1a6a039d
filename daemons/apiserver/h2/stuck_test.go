package h2_test

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"clusterctl/daemons/apiserver/h2"
)

// gatedListener is a listener whose connections block writes while their gate is closed.
type gatedListener struct {
	net.Listener
	gate *atomic.Pointer[chan struct{}]
}

type gatedConn struct {
	net.Conn
	gate *atomic.Pointer[chan struct{}]
}

func (g gatedListener) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gatedConn{conn, g.gate}, nil
}

func (g gatedConn) Write(p []byte) (int, error) {
	if gate := g.gate.Load(); gate != nil {
		<-*gate
	}
	return g.Conn.Write(p)
}

// A stream that ends during a network write, before its response waits for room, ends its handler.
func TestStreamEndDuringAWriteEndsTheHandler(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	closed, started, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	address, config, _ := serveOn(
		t,
		func(ln net.Listener) net.Listener { return gatedListener{ln, &gate} },
		&h2.Server{},
		func(w http.ResponseWriter, r *http.Request) {
			gate.Store(&closed)
			close(started)
			go func() {
				<-r.Context().Done() // the server has read the client's reset
				close(closed)
			}()
			_, err := w.Write(make([]byte, 1000)) // the headers are sent, and the window has no room for the body
			ended <- err
		},
	)
	c := dialRaw(t, address, config, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.readUntil("the acknowledgement of the settings, which nobody else is to be sending", func(f any) bool {
		settings, ok := f.(*http2.SettingsFrame)
		return ok && settings.IsAck()
	})
	c.begin(1, http.MethodGet, true)
	<-started
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a write to a stream that has ended went well")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the handler still waits for room on a stream that has ended")
	}
}
