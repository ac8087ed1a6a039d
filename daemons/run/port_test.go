package run

import (
	"net"
	"testing"
)

// A free port stays free, however many connections are made before it is used.
func TestFreePortsAreNotUsedByConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	given := map[int]bool{}
	for range 200 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		given[c.LocalAddr().(*net.TCPAddr).Port] = true
	}
	for range 200 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || port < firstFreePort || port > lastFreePort {
			t.Errorf("port %d is free", port)
		}
		if again, err := listenOnce(port); err != nil || again != port {
			t.Errorf("port %d is %d when it is used: %v", port, again, err)
		}
	}
}
