package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/dns/wire"
)

const (
	batchSize = 32   // datagrams per system call
	maxQuery  = 4096 // bytes; longer datagrams are not valid queries
	// maxWaiting limits the UDP queries that wait for other servers. Further queries get no answer, and the client asks
	// again.
	maxWaiting = 4000
)

// udpServer answers datagrams. Several goroutines read the same socket, and each answers what it has read. A query for
// other servers gets its own goroutine.
type udpServer struct {
	handler    *handler
	conn       *net.UDPConn
	raw        syscall.RawConn
	workspaces sync.Pool     // of *workspace
	waitSlots  chan struct{} // holds one value for each waiting query
	waiters    sync.WaitGroup
}

func newUDPServer(h *handler, conn *net.UDPConn) (*udpServer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &udpServer{
		handler:    h,
		conn:       conn,
		raw:        raw,
		workspaces: sync.Pool{New: func() any { return new(workspace) }},
		waitSlots:  make(chan struct{}, maxWaiting),
	}, nil
}

// datagram is the kernel's struct mmsghdr.
type datagram struct {
	head unix.Msghdr
	size uint32
	_    [4]byte
}

// datagramBatch is the memory of one reading goroutine.
type datagramBatch struct {
	in, out   [batchSize]datagram
	read      [batchSize][maxQuery]byte
	write     [batchSize][wire.UDPSize]byte
	parts     [2][batchSize]unix.Iovec
	addresses [batchSize]unix.RawSockaddrInet6
	controls  [batchSize][controlSize]byte
}

// controlSize is the size of the control message with the destination address of a datagram, from which the answer is
// sent.
const controlSize = 64

func newDatagramBatch() *datagramBatch {
	d := &datagramBatch{}
	for i := range batchSize {
		d.parts[0][i].Base = &d.read[i][0]
		d.parts[0][i].SetLen(maxQuery)
		d.in[i].head.Iov = &d.parts[0][i]
		d.in[i].head.SetIovlen(1)
		d.in[i].head.Name = (*byte)(unsafe.Pointer(&d.addresses[i]))
		d.in[i].head.Control = &d.controls[i][0]
	}
	return d
}

// serve answers datagrams until ctx ends. Then it answers those that have arrived, unless handedOver reports that the
// next process gets the socket.
func (s *udpServer) serve(ctx context.Context, handedOver func() bool) error {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	d, w := newDatagramBatch(), new(workspace)
	var n int
	var failed syscall.Errno
	receive := func(fd uintptr) bool {
		for i := range batchSize {
			d.in[i].head.Namelen = uint32(unsafe.Sizeof(d.addresses[i]))
			d.in[i].head.SetControllen(controlSize)
		}
		var got uintptr
		for failed = unix.EINTR; failed == unix.EINTR; {
			got, _, failed = unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&d.in[0])), batchSize,
				unix.MSG_DONTWAIT, 0, 0)
		}
		if failed == 0 {
			n = int(got)
		}
		return failed != unix.EAGAIN
	}
	for {
		n, failed = 0, 0
		err := s.raw.Read(receive)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if handedOver() || s.raw.Control(func(fd uintptr) { receive(fd) }) != nil || failed != 0 || n == 0 {
				return nil
			}
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case failed != 0:
			continue // an error of an earlier sent datagram
		}
		s.answer(ctx, d, w, n)
	}
}

// answer answers the first n datagrams.
func (s *udpServer) answer(ctx context.Context, d *datagramBatch, w *workspace, n int) {
	start, ready := time.Now(), 0
	for i := range n {
		in := &d.in[i]
		if in.head.Flags&unix.MSG_TRUNC != 0 {
			continue
		}
		message, c := d.read[i][:in.size], sender{addr: addressOf(&d.addresses[i])}
		reply, later := s.handler.respond(ctx, w, d.write[ready][:0], message, c, false, start)
		if later {
			s.answerLater(ctx, append([]byte(nil), message...), c, append([]byte(nil), replyControl(in)...), start)
			continue
		}
		if len(reply) == 0 {
			continue
		}
		out := &d.out[ready]
		out.head = in.head
		part := &d.parts[1][ready]
		part.Base = &reply[0]
		part.SetLen(len(reply))
		out.head.Iov, out.head.Flags = part, 0
		control := replyControl(in)
		out.head.Control = nil
		if out.head.SetControllen(len(control)); len(control) > 0 {
			out.head.Control = &control[0]
		}
		ready++
	}
	s.send(d, ready)
}

// send sends the first count answers. An answer that cannot be sent is dropped, as a network may do.
func (s *udpServer) send(d *datagramBatch, count int) {
	for sent := 0; sent < count; {
		var n uintptr
		var failed syscall.Errno
		err := s.raw.Write(func(fd uintptr) bool {
			n, _, failed = unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&d.out[sent])),
				uintptr(count-sent), unix.MSG_DONTWAIT, 0, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return
		}
		if failed != 0 || n == 0 {
			n = 1
		}
		sent += int(n)
	}
}

// answerLater answers one query with the help of other servers, in a new goroutine. It drops the query if too many
// wait.
func (s *udpServer) answerLater(ctx context.Context, message []byte, c sender, control []byte, start time.Time) {
	select {
	case s.waitSlots <- struct{}{}:
	default:
		return
	}
	s.waiters.Go(func() {
		defer func() { <-s.waitSlots }()
		w := s.workspaces.Get().(*workspace)
		defer s.workspaces.Put(w)
		reply, _ := s.handler.respond(context.WithoutCancel(ctx), w, make([]byte, 0, wire.UDPSize), message, c, true,
			start)
		if len(reply) > 0 {
			if _, _, err := s.conn.WriteMsgUDPAddrPort(reply, control, c.addr); err != nil {
				s.handler.log.Debug("send an answer", "client", c.addr, "error", err)
			}
		}
	})
}

func addressOf(a *unix.RawSockaddrInet6) netip.AddrPort {
	if a.Family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), networkOrder(four.Port))
	}
	ip := netip.AddrFrom16(a.Addr)
	if ip.IsLinkLocalUnicast() {
		ip = ip.WithZone(strconv.Itoa(int(a.Scope_id)))
	}
	return netip.AddrPortFrom(ip, networkOrder(a.Port))
}

func networkOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// replyControl converts the control message of a datagram so that the answer is sent from the datagram's destination
// address. The routing table chooses the interface, except for addresses that are specific to an interface.
func replyControl(in *datagram) []byte {
	if in.head.Controllen < unix.SizeofCmsghdr {
		return nil
	}
	control := unsafe.Slice(in.head.Control, int(in.head.Controllen))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	data := control[unix.CmsgLen(0):]
	switch {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		(*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Ifindex = 0
		return control[:unix.CmsgSpace(unix.SizeofInet4Pktinfo)]
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
		if !netip.AddrFrom16(info.Addr).IsLinkLocalUnicast() {
			info.Ifindex = 0
		}
		return control[:unix.CmsgSpace(unix.SizeofInet6Pktinfo)]
	}
	return nil
}
