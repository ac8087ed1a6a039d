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
	// MaxFlows limits the clients of one UDP port. Beyond it, the client that was idle longest is dropped.
	MaxFlows = 4096
	// idleTimeout is how long a flow is kept without a packet, like the kernel's timeout.
	idleTimeout = 30 * time.Second
	// maxPacket is the maximum size of a UDP packet, in bytes.
	maxPacket = 64 << 10
)

// UDP forwards packets that rules have redirected to a socket of this machine.
type UDP struct {
	candidates func(client netip.Addr) (rules.Candidates, bool)
	turns      *Turns
	log        *slog.Logger
	conn       *net.UDPConn

	mu    sync.Mutex
	flows map[netip.AddrPort]*list.Element // by client
	byAge list.List                        // of *flow, the longest idle last
	ended bool
	done  sync.WaitGroup
}

// flow is the traffic between one client and its endpoint.
type flow struct {
	client, to   netip.AddrPort
	conn         *net.UDPConn
	replyControl []byte // control message with the address at which the client's packets arrived
}

// ListenUDP opens a socket and starts forwarding. network is "udp4" or "udp6".
func ListenUDP(
	network string,
	turns *Turns,
	log *slog.Logger,
	way func(client netip.Addr) (rules.Candidates, bool),
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
	u := &UDP{candidates: way, turns: turns, log: log, conn: conn, flows: map[netip.AddrPort]*list.Element{}}
	u.done.Go(u.readPackets)
	return u, nil
}

// Port returns the socket's port.
func (u *UDP) Port() uint16 { return uint16(u.conn.LocalAddr().(*net.UDPAddr).Port) }

// Close closes the socket and all flows, and waits until their goroutines end.
func (u *UDP) Close() {
	u.conn.Close()
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.CloseOthers(nil)
	u.done.Wait()
}

// CloseOthers closes the flows to endpoints that are not in eps.
func (u *UDP) CloseOthers(eps []rules.Endpoint) {
	still := make(map[netip.AddrPort]bool, len(eps))
	for _, e := range eps {
		still[e.To] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.flows {
		if f := e.Value.(*flow); !still[f.to] {
			u.closeFlow(e)
		}
	}
}

// closeFlow closes a flow. The caller holds mu.
func (u *UDP) closeFlow(e *list.Element) {
	f := u.byAge.Remove(e).(*flow)
	delete(u.flows, f.client)
	f.conn.Close()
}

func (u *UDP) readPackets() {
	packet, control := make([]byte, maxPacket), make([]byte, 128)
	for {
		n, c, _, client, err := u.conn.ReadMsgUDPAddrPort(packet, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the error concerns one packet
		}
		if f := u.flowOf(client, control[:c]); f != nil {
			_, _ = f.conn.Write(packet[:n]) // UDP packets may be lost
		}
	}
}

// flowOf returns the flow of a client, or nil if there is no endpoint.
func (u *UDP) flowOf(client netip.AddrPort, control []byte) *flow {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.flows[client]; e != nil {
		u.byAge.MoveToFront(e)
		return e.Value.(*flow)
	}
	if u.ended {
		return nil
	}
	way, ok := u.candidates(unmapAddress(client).Addr())
	if !ok {
		return nil
	}
	to, ok := u.turns.Next(way, unmapAddress(client).Addr(), nil)
	if !ok {
		return nil
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		u.log.Warn("send packets to an endpoint", "service", way.Key, "endpoint", to, "error", err)
		return nil
	}
	for u.byAge.Len() >= MaxFlows {
		u.closeFlow(u.byAge.Back())
	}
	f := &flow{client: client, to: to, conn: conn, replyControl: replyControl(control)}
	u.flows[client] = u.byAge.PushFront(f)
	u.done.Go(func() { u.forwardAnswers(f) })
	return f
}

// forwardAnswers forwards an endpoint's packets to the client until the flow ends or times out.
func (u *UDP) forwardAnswers(f *flow) {
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e := u.flows[f.client]; e != nil && e.Value == f {
			u.closeFlow(e)
		}
	}()
	raw, err := f.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		_ = f.conn.SetReadDeadline(time.Now().Add(idleTimeout))
		var failed, written error
		if err := raw.Read(func(fd uintptr) (exists bool) {
			packet := packetBuffers.Get().(*[maxPacket]byte)
			defer packetBuffers.Put(packet)
			n := 0
			for n, failed = unix.Read(int(fd), packet[:]); failed == unix.EINTR; {
				n, failed = unix.Read(int(fd), packet[:])
			}
			if failed == unix.EAGAIN {
				return false
			}
			if failed == nil {
				_, _, written = u.conn.WriteMsgUDPAddrPort(packet[:n], f.replyControl, f.client)
			}
			return true
		}); err != nil || failed != nil || errors.Is(written, net.ErrClosed) {
			return // the endpoint is unreachable, the flow timed out, or it was closed
		}
	}
}

// packetBuffers is a pool of buffers. A waiting flow holds no buffer, because one sender can create thousands of flows.
var packetBuffers = sync.Pool{New: func() any { return new([maxPacket]byte) }}

// replyControl converts the control message of a received packet into one that sends the response from the same
// address.
func replyControl(control []byte) []byte {
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
