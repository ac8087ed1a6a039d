package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"clusterctl/provision/host"
)

// Trace watches for a packet on all interfaces, and sends it if q says so. It calls started when it watches.
func (h *Host) Trace(ctx context.Context, q host.Trace, started func()) (host.Traced, error) {
	if q.Protocol != host.TCP && q.Protocol != host.UDP || !q.To.IsValid() || q.Duration <= 0 ||
		q.Duration > host.MaxTraceTime {
		return host.Traced{}, fmt.Errorf("a trace of %s to %s for %s cannot be made", q.Protocol, q.To, q.Duration)
	}
	w, err := watchLinks()
	if err != nil {
		return host.Traced{}, err
	}
	defer w.close()
	t := host.Traced{Routes: map[string]string{}}
	for _, a := range q.Routes {
		t.Routes[a.String()] = routeTo(a)
	}
	started()
	ctx, cancel := context.WithTimeout(ctx, q.Duration)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if q.Send {
			t.Outcome, t.Reason, t.Local = sendTraced(q)
			// The last packets may still be passing through this machine.
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	}()
	t.Sightings, err = w.readUntil(ctx, q)
	<-sent
	return t, err
}

// routeTo returns the name of the interface over which this machine reaches an address, or "" if it does not.
func routeTo(a netip.Addr) string {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

// packetWatcher reads packets from all interfaces, without their link-layer headers.
type packetWatcher struct {
	fd    int
	names map[int]string
}

func watchLinks() (*packetWatcher, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return nil, fmt.Errorf("watch interfaces: %w", err)
	}
	w := &packetWatcher{fd: fd, names: map[int]string{}}
	if err := attachFilter(fd); err != nil {
		w.close()
		return nil, fmt.Errorf("watch interfaces: %w", err)
	}
	// Discard packets that arrived before the filter was attached.
	var b [1]byte
	for {
		if _, _, err := unix.Recvfrom(fd, b[:], 0); err != nil {
			return w, nil
		}
	}
}

func (w *packetWatcher) close() { _ = unix.Close(w.fd) }

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// attachFilter attaches a filter for packets that may belong to a trace: TCP with SYN or RST, UDP, and ICMP. IPv6
// packets with extension headers are not matched.
func attachFilter(fd int) error {
	const accept, drop = 1 << 16, 0
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipFalse: 8},
		bpf.LoadAbsolute{Off: 9, Size: 1}, // protocol field of IPv4
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 13},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipTrue: 12},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: 12},
		bpf.LoadMemShift{Off: 0},
		bpf.LoadIndirect{Off: 13, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x06, SkipTrue: 8, SkipFalse: 9}, // flags SYN, RST
		bpf.RetConstant{Val: drop},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 6, SkipFalse: 7},
		bpf.LoadAbsolute{Off: 6, Size: 1}, // next header field of IPv6
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 53, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x06, SkipFalse: 1},
		bpf.RetConstant{Val: accept},
		bpf.RetConstant{Val: drop},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// readUntil reads packets until ctx ends.
func (w *packetWatcher) readUntil(ctx context.Context, q host.Trace) ([]host.Sighting, error) {
	start := time.Now()
	var list []host.Sighting
	seen := map[host.Sighting]bool{} // without At, so that a retransmission is reported once
	packet := make([]byte, 256)
	for ctx.Err() == nil && len(list) < host.MaxSightings {
		poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 50); err != nil && !errors.Is(err, unix.EINTR) {
			return list, fmt.Errorf("watch interfaces: %w", err)
		}
		for {
			n, from, err := unix.Recvfrom(w.fd, packet, 0)
			if err != nil {
				break
			}
			link, ok := from.(*unix.SockaddrLinklayer)
			if !ok {
				continue
			}
			s, ok := readPacket(packet[:n], q)
			if !ok {
				continue
			}
			s.Link, s.IsOutgoing = w.linkName(link.Ifindex), link.Pkttype == unix.PACKET_OUTGOING
			if !seen[s] {
				seen[s] = true
				s.At = time.Since(start)
				list = append(list, s)
			}
		}
	}
	return list, nil
}

func (w *packetWatcher) linkName(index int) string {
	if name, ok := w.names[index]; ok {
		return name
	}
	name := fmt.Sprintf("interface %d", index)
	if link, err := net.InterfaceByIndex(index); err == nil {
		name = link.Name
	}
	w.names[index] = name
	return name
}

// readPacket parses a packet that starts with its IP header, and reports whether it may belong to the trace.
func readPacket(b []byte, q host.Trace) (s host.Sighting, ok bool) {
	from, to, protocol, b, ok := readIP(b)
	if !ok {
		return s, false
	}
	switch protocol {
	case unix.IPPROTO_TCP:
		if len(b) < 14 || q.Protocol != host.TCP {
			return s, false
		}
		s = newSighting(from, to, b)
		const syn, rst, ack = 0x02, 0x04, 0x10
		sequence, acknowledged := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		switch flags := b[13]; {
		case flags&(syn|ack|rst) == syn:
			s.Kind, s.Number = host.KindRequest, sequence
			return s, slices.Contains(q.Ports, s.To.Port())
		case flags&(syn|ack) == syn|ack:
			s.Kind, s.Number = host.KindAccepted, acknowledged-1
		case flags&(rst|ack) == rst|ack:
			s.Kind, s.Number = host.KindReset, acknowledged-1
		default:
			return s, false
		}
		return s, slices.Contains(q.Ports, s.From.Port())
	case unix.IPPROTO_UDP:
		if len(b) < 12 || q.Protocol != host.UDP || binary.BigEndian.Uint32(b[8:]) != q.Mark {
			return s, false
		}
		s = newSighting(from, to, b)
		s.Kind, s.Number = host.KindRequest, q.Mark
		return s, slices.Contains(q.Ports, s.To.Port())
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return readError(from, protocol, b, q)
	}
	return s, false
}

// readError parses an ICMP error, which contains the beginning of the packet that it is about.
func readError(sender netip.Addr, protocol int, b []byte, q host.Trace) (s host.Sighting, ok bool) {
	const unreachable4, exceeded4 = 3, 11
	if len(b) < 8 || protocol == unix.IPPROTO_ICMP && b[0] != unreachable4 && b[0] != exceeded4 ||
		protocol == unix.IPPROTO_ICMPV6 && (b[0] == 0 || b[0] > 3) {
		return s, false
	}
	from, to, about, b, ok := readIP(b[8:])
	if !ok || len(b) < 8 {
		return s, false
	}
	s = newSighting(from, to, b)
	s.Kind, s.Number = host.KindUnreachable, q.Mark
	switch {
	case about == unix.IPPROTO_TCP && q.Protocol == host.TCP:
		s.Number = binary.BigEndian.Uint32(b[4:])
	case about == unix.IPPROTO_UDP && q.Protocol == host.UDP:
	default:
		return s, false
	}
	ok = slices.Contains(q.Ports, s.To.Port())
	s.To, s.From = s.From, netip.AddrPortFrom(sender, 0)
	return s, ok
}

func readIP(b []byte) (from, to netip.Addr, protocol int, rest []byte, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		head := int(b[0]&15) * 4
		// Only the first fragment of a packet contains the ports.
		if head < 20 || len(b) < head || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return from, to, 0, nil, false
		}
		return netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), int(b[9]), b[head:], true
	case len(b) >= 40 && b[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), int(b[6]), b[40:], true
	}
	return from, to, 0, nil, false
}

func newSighting(from, to netip.Addr, b []byte) host.Sighting {
	return host.Sighting{
		From: netip.AddrPortFrom(from,
			binary.BigEndian.Uint16(b)), To: netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])),
	}
}
