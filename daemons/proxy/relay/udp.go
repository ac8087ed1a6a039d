package relay

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/proxy/rules"
)

const (
	// MaxFlows bounds the clients of one UDP port; the one that was quiet for longest makes room for another.
	MaxFlows = 4096
	// quiet is after how long without a packet a client is forgotten, as the kernel forgets flows.
	quiet = 30 * time.Second
	// largest is the largest packet of UDP.
	largest = 64 << 10
)

// UDP carries packets that rules have led to a socket of this machine.
type UDP struct {
	way   func(client netip.Addr) (rules.Way, bool)
	turns *Turns
	log   *slog.Logger
	conn  *net.UDPConn

	mu    sync.Mutex
	flows map[netip.AddrPort]*list.Element // by client
	byAge list.List                        // of *flow, the quietest last
	ended bool
	done  sync.WaitGroup
}

// flow is what one client sends, and what it is answered.
type flow struct {
	client, to netip.AddrPort
	conn       *net.UDPConn
	answerFrom []byte // control message: the address at which the client's packets came
}

// ListenUDP opens a socket of a family, "udp4" or "udp6", and begins to carry.
func ListenUDP(
	network string,
	turns *Turns,
	log *slog.Logger,
	way func(client netip.Addr) (rules.Way, bool),
) (*UDP, error) {
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("listen for packets of a service: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		controlled := raw.Control(func(fd uintptr) {
			if network == "udp4" {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			}
		})
		err = errors.Join(controlled, err)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask for the addresses that packets come to: %w", err)
	}
	u := &UDP{way: way, turns: turns, log: log, conn: conn, flows: map[netip.AddrPort]*list.Element{}}
	u.done.Go(u.read)
	return u, nil
}

// Port is the socket's.
func (u *UDP) Port() uint16 { return uint16(u.conn.LocalAddr().(*net.UDPAddr).Port) }

// Close ends everything and waits for it.
func (u *UDP) Close() {
	u.conn.Close()
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.Keep(nil)
	u.done.Wait()
}

// Keep ends the flows to endpoints that are no longer among those.
func (u *UDP) Keep(eps []rules.Endpoint) {
	still := make(map[netip.AddrPort]bool, len(eps))
	for _, e := range eps {
		still[e.To] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.flows {
		if f := e.Value.(*flow); !still[f.to] {
			u.drop(e)
		}
	}
}

// drop ends a flow; mu is held.
func (u *UDP) drop(e *list.Element) {
	f := u.byAge.Remove(e).(*flow)
	delete(u.flows, f.client)
	f.conn.Close()
}

func (u *UDP) read() {
	packet, control := make([]byte, largest), make([]byte, 128)
	for {
		n, c, _, client, err := u.conn.ReadMsgUDPAddrPort(packet, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one packet
		}
		if f := u.flow(client, control[:c]); f != nil {
			_, _ = f.conn.Write(packet[:n]) // packets may be lost
		}
	}
}

// flow returns the flow of a client, nil when there is nobody to answer it.
func (u *UDP) flow(client netip.AddrPort, control []byte) *flow {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.flows[client]; e != nil {
		u.byAge.MoveToFront(e)
		return e.Value.(*flow)
	}
	if u.ended {
		return nil
	}
	way, ok := u.way(plain(client).Addr())
	if !ok {
		return nil
	}
	to, ok := u.turns.Next(way, plain(client).Addr(), nil)
	if !ok {
		return nil
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		u.log.Warn("send packets to an endpoint", "service", way.Key, "endpoint", to, "error", err)
		return nil
	}
	for u.byAge.Len() >= MaxFlows {
		u.drop(u.byAge.Back())
	}
	f := &flow{client: client, to: to, conn: conn, answerFrom: source(control)}
	u.flows[client] = u.byAge.PushFront(f)
	u.done.Go(func() { u.answer(f) })
	return f
}

// answer carries what an endpoint sends back, until the flow ends or is quiet for long.
func (u *UDP) answer(f *flow) {
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e := u.flows[f.client]; e != nil && e.Value == f {
			u.drop(e)
		}
	}()
	raw, err := f.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		_ = f.conn.SetReadDeadline(time.Now().Add(quiet))
		var failed, written error
		if err := raw.Read(func(fd uintptr) (there bool) {
			packet := packets.Get().(*[largest]byte)
			defer packets.Put(packet)
			n := 0
			for n, failed = unix.Read(int(fd), packet[:]); failed == unix.EINTR; {
				n, failed = unix.Read(int(fd), packet[:])
			}
			if failed == unix.EAGAIN {
				return false
			}
			if failed == nil {
				_, _, written = u.conn.WriteMsgUDPAddrPort(packet[:n], f.answerFrom, f.client)
			}
			return true
		}); err != nil || failed != nil || errors.Is(written, net.ErrClosed) {
			return // nobody is there, nothing comes, or it was closed
		}
	}
}

// packets are memory for packets that have come. A flow has none while it waits: anybody can be thousands of clients.
var packets = sync.Pool{New: func() any { return new([largest]byte) }}

// source makes of the control message that a packet came with the one by which its answer leaves from the same address.
func source(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}
