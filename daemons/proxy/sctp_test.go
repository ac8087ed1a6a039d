package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/nft"
	"clusterctl/tests/lab/netns"
)

// sctpArrival is a first SCTP packet that an endpoint received.
type sctpArrival struct {
	from netip.Addr
	port uint16 // port of the client, which the rules may have changed
	tag  uint32 // verification tag of the client, which identifies the packet
	at   string // here or there
}

// sctpListener receives the first SCTP packets at both endpoints on raw sockets, because the kernel's SCTP may be
// missing.
type sctpListener chan sctpArrival

func listenSCTP(t *testing.T, g *testNetwork) sctpListener {
	t.Helper()
	heard := make(sctpListener, 64)
	for _, e := range []struct {
		at string
		in *netns.Stack
	}{{"here", g.podA}, {"there", g.machineB}} {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			var fd int
			if err := e.in.Do(func() (err error) {
				fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(nft.SCTP))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			timeout := unix.Timeval{Usec: 100_000}
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
				t.Fatal(err)
			}
			done, ended := make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(done); <-ended; unix.Close(fd) })
			go func() {
				defer close(ended)
				receiveSCTP(fd, e.at, heard, done)
			}()
		}
	}
	return heard
}

func receiveSCTP(fd int, at string, heard sctpListener, done chan struct{}) {
	b := make([]byte, 2048)
	for {
		select {
		case <-done:
			return
		default:
		}
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			continue
		}
		packet, a := b[:n], sctpArrival{at: at}
		switch from := from.(type) {
		case *unix.SockaddrInet4:
			a.from, packet = netip.AddrFrom4(from.Addr), packet[4*(packet[0]&15):]
		case *unix.SockaddrInet6:
			a.from = netip.AddrFrom16(from.Addr)
		}
		if len(packet) >= 20 && binary.BigEndian.Uint16(packet[2:]) == 8080 && packet[12] == 1 {
			a.port, a.tag = binary.BigEndian.Uint16(packet), binary.BigEndian.Uint32(packet[16:])
			select {
			case heard <- a:
			case <-done:
				return
			}
		}
	}
}

var sctpTag atomic.Uint32

// sendSCTP sends the first packet of an association for a row. The error states how the result differs from the
// expected one.
func (r matrixRow) sendSCTP(heard sctpListener, from *netns.Stack, to string, own []string) error {
	target, tag := netip.MustParseAddrPort(to), sctpTag.Add(1)
	send := func() error {
		family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: target.Addr().As16()})
		if target.Addr().Is4() {
			family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: target.Addr().As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(nft.SCTP))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, newInitPacket(uint16(20000+tag%20000), target.Port(), tag), 0, address)
	}
	var err error
	if from == nil {
		err = send()
	} else {
		err = from.Do(send)
	}
	if err != nil && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) &&
		!errors.Is(err, unix.EPERM) &&
		!errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	wait := time.After(100 * time.Millisecond)
	if r.want == outcomeReached {
		wait = time.After(longTimeout)
	}
	for {
		select {
		case a := <-heard:
			if a.tag != tag {
				continue // a late packet
			}
			if r.want != outcomeReached {
				return fmt.Errorf("arrived %s from %s; want %s", a.at, a.from, r.want)
			}
			if a.at != r.at {
				return fmt.Errorf("arrived %s", a.at)
			}
			if isKept := slices.Contains(own, a.from.String()); isKept != r.isClientKept {
				return fmt.Errorf("seen as %s, its own address is kept: want %t", a.from, r.isClientKept)
			}
			return nil
		case <-wait:
			if r.want == outcomeReached {
				return fmt.Errorf("did not arrive (sent: %v)", err)
			}
			return nil
		}
	}
}

// newInitPacket returns a packet with an INIT chunk.
func newInitPacket(from, to uint16, tag uint32) []byte {
	b := make([]byte, 32)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	b[12], b[15] = 1, 20 // INIT and its length
	binary.BigEndian.PutUint32(b[16:], tag)
	binary.BigEndian.PutUint32(b[20:], 65536)
	binary.BigEndian.PutUint16(b[24:], 1)
	binary.BigEndian.PutUint16(b[26:], 1)
	binary.BigEndian.PutUint32(b[28:], 1)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// A client repeats an SCTP association from the same port. It stays with an endpoint that a slice lists, ready or not.
// After the endpoint was removed, the next packet goes to an existing one.
// Proves S28.
func TestSCTPAssociationsLeaveRemovedEndpoints(t *testing.T) {
	g := newTestNetwork(t)
	heard := listenSCTP(t, g)
	send := func(port uint16) string {
		t.Helper()
		tag := sctpTag.Add(1)
		if err := g.podB.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(nft.SCTP))
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, newInitPacket(port, 80, tag), 0, &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 1}})
		}); err != nil {
			t.Fatal(err)
		}
		for wait := time.After(longTimeout); ; {
			select {
			case a := <-heard:
				if a.tag == tag {
					return a.at
				}
			case <-wait:
				return "nowhere"
			}
		}
	}
	for i, mode := range []string{modeNFTables, modeIPTables} {
		t.Run(mode, func(t *testing.T) {
			d := machineA(t, mode)
			s := matrixService(0)
			s.Spec.SessionAffinity = corev1.ServiceAffinityNone
			port := uint16(5000 + i)
			at := func(when, want string) {
				t.Helper()
				if got := send(port); got != want {
					t.Errorf("%s it came %s; want %s", when, got, want)
				}
			}
			d.putService(t, s, newSlices(s.Name, 2)...)
			at("with one endpoint", "here")
			both := newSlices(s.Name, 2, 102)
			for _, slice := range both {
				slice.Endpoints[0].Conditions.Ready = new(bool)
			}
			d.putService(t, s, both...)
			at("while its endpoint is not ready", "here")
			d.putService(t, s, newSlices(s.Name, 102)...)
			at("when its endpoint was gone", "there")
			for _, slice := range newSlices(s.Name) {
				if err := d.slices.Delete(slice); err != nil {
					t.Fatal(err)
				}
			}
			d.putService(t, s)
		})
	}
}
