package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
	"clusterctl/tests/reference/isolation"
)

// netNamespace is a network namespace, such as a pod's.
type netNamespace struct{ file *os.File }

// runInside runs a function on a thread in the network namespace. The thread ends afterwards.
func (s *netNamespace) runInside(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if s != nil {
			if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
				done <- err
				return
			}
		}
		done <- do()
	}()
	return <-done
}

func newNetNamespace(t testing.TB) *netNamespace {
	t.Helper()
	s := &netNamespace{}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.file.Close() })
	s.ip(t, "link", "set", "lo", "up")
	return s
}

// ip runs ip in the network namespace. A nil netNamespace means the machine's.
func (s *netNamespace) ip(t testing.TB, args ...string) {
	t.Helper()
	if err := s.runInside(func() error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %s", strings.Join(args, " "), out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// addPair creates a pair of interfaces and deletes it at the end of the test. With its namespace it would be deleted
// only some time later.
func (s *netNamespace) addPair(t testing.TB, name, peer string) {
	t.Helper()
	s.ip(t, "link", "add", name, "type", "veth", "peer", "name", peer)
	t.Cleanup(func() { s.ip(t, "link", "del", name) })
}

// serve answers all clients at some ports of an address, over TCP and UDP.
func (s *netNamespace) serve(t testing.TB, a netip.Addr, ports ...uint16) {
	t.Helper()
	for _, port := range ports {
		at := netip.AddrPortFrom(a, port).String()
		var ln net.Listener
		var pc net.PacketConn
		if err := s.runInside(func() (err error) {
			if ln, err = net.Listen("tcp", at); err == nil {
				pc, err = net.ListenPacket("udp", at)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close(); pc.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		}()
		go func() {
			b := make([]byte, 100)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = pc.WriteTo(b[:n], from)
			}
		}()
	}
}

// dial opens a connection from an address.
func (s *netNamespace) dial(from, to netip.Addr, protocol uint8, port uint16, within time.Duration) (c net.Conn,
	err error) {
	err = s.runInside(func() error {
		d := net.Dialer{Timeout: within, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
		kind := "tcp"
		if protocol == nft.UDP {
			kind, d.LocalAddr = "udp", &net.UDPAddr{IP: from.AsSlice()}
		}
		c, err = d.Dial(kind, netip.AddrPortFrom(to, port).String())
		return err
	})
	return c, err
}

// echo reports whether sent data comes back.
func echo(c net.Conn, within time.Duration) bool {
	_ = c.SetDeadline(time.Now().Add(within))
	b := []byte("hello")
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(c, b)
	return err == nil
}

// isPassed reports whether a packet gets through and is answered. within should allow for a busy machine.
func (s *netNamespace) isPassed(p isolation.Packet, within time.Duration) bool {
	c, err := s.dial(p.From, p.To, p.Protocol, p.Port, within)
	if err != nil {
		return false
	}
	defer c.Close()
	return echo(c, within)
}

// move moves an interface to another network namespace.
func (s *netNamespace) move(t testing.TB, link string, to *netNamespace) {
	t.Helper()
	if err := s.runInside(func() error {
		cmd := exec.Command("ip", "link", "set", link, "netns", "/proc/self/fd/3")
		cmd.ExtraFiles = []*os.File{to.file}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("move %s: %s", link, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
