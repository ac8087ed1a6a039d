package run

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// layer is a connection above another.
type layer struct{ net.Conn }

func (l layer) NetConn() net.Conn { return l.Conn }

// A peer that never reads has no connection any more a limit after it was closed. Without CloseWithin the
// kernel keeps it for minutes.
func TestConnectionsOfPeersThatDoNotReadEndSoonAfterTheyWereClosed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := accepted.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for piece := make([]byte, 1<<20); err == nil; {
		_, err = accepted.Write(piece)
	}
	if err := CloseWithin(layer{layer{accepted}}, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	isGone := func() bool {
		connections, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		row := hexAddress(accepted.LocalAddr()) + " " + hexAddress(accepted.RemoteAddr())
		return !strings.Contains(string(connections), row)
	}
	for deadline := time.Now().Add(30 * time.Second); !isGone(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the kernel still has the connection")
		}
	}
}

// hexAddress returns an IPv4 address as in /proc/net/tcp, which has the bytes of the host's order.
func hexAddress(of net.Addr) string {
	addr := of.(*net.TCPAddr).AddrPort()
	ip := addr.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), addr.Port())
}
