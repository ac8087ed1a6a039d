package client

import (
	"net"
	"testing"
)

// S14: a daemon's connection finds a living API server, whichever of them is dead.
func TestTheDialerFindsALivingServer(t *testing.T) {
	living := listen(t)
	dead := listen(t)
	dead.Close()
	d := &dialer{servers: []string{dead.Addr().String(), living.Addr().String()}}
	conn, err := d.dial(t.Context(), "tcp", "kubernetes:6443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != living.Addr().String() {
		t.Errorf("connected to %s", got)
	}
	if d.last.Load() != 1 {
		t.Error("the next connection does not begin with the living server")
	}
}

func TestNoServerIsAnErrorThatNamesThem(t *testing.T) {
	dead := listen(t)
	dead.Close()
	if _, err := (&dialer{servers: []string{dead.Addr().String()}}).dial(t.Context(), "tcp", ""); err == nil {
		t.Fatal("connected to nobody")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
