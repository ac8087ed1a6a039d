package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/run"
)

// These are the names of the sockets that systemd keeps between processes.
const (
	storedUDP = "dns-udp"
	storedTCP = "dns-tcp"
)

// receiveBuffer is the size of the receive buffer in bytes, as far as the system allows. Queries wait in it during a
// restart.
const receiveBuffer = 8 << 20

// sockets are the sockets for queries.
type sockets struct {
	udp    *net.UDPConn
	tcp    *net.TCPListener
	stored atomic.Bool // systemd keeps them for the next process
}

// openSockets takes the sockets of the previous process, or opens new ones. Both protocols use the same port.
func openSockets(ctx context.Context, address string, log *slog.Logger) (*sockets, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "53")
	}
	s := &sockets{}
	if err := s.inherit(address); err != nil {
		log.Warn("take the sockets of the process before over; new ones are opened", "error", err)
		if err := errors.Join(run.CloseStored(storedUDP), run.CloseStored(storedTCP)); err != nil {
			return nil, err
		}
	}
	if s.udp == nil {
		if err := s.open(ctx, address); err != nil {
			return nil, fmt.Errorf("listen for questions: %w", err)
		}
	}
	if err := s.prepare(); err != nil {
		s.close()
		return nil, fmt.Errorf("prepare the socket for questions: %w", err)
	}
	return s, nil
}

// inherit takes the kept sockets if they have the address.
func (s *sockets) inherit(address string) error {
	udp, tcp := run.InheritedSockets(storedUDP), run.InheritedSockets(storedTCP)
	defer func() {
		for _, f := range append(udp, tcp...) {
			f.Close()
		}
	}()
	if len(udp) == 0 && len(tcp) == 0 {
		return nil
	}
	if len(udp) != 1 || len(tcp) != 1 {
		return fmt.Errorf("there are %d for UDP and %d for TCP", len(udp), len(tcp))
	}
	conn, err := net.FilePacketConn(udp[0])
	if err != nil {
		return err
	}
	ln, err := net.FileListener(tcp[0])
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	u, isUDP := conn.(*net.UDPConn)
	t, isTCP := ln.(*net.TCPListener)
	if !isUDP || !isTCP || !sameAddress(conn.LocalAddr(), address) || !sameAddress(ln.Addr(), address) {
		return errors.Join(fmt.Errorf("they are at %s, not at %s", conn.LocalAddr(), address), conn.Close(), ln.Close())
	}
	s.udp, s.tcp = u, t
	return nil
}

// sameAddress reports whether a socket has the wanted address. Port 0 matches any port.
func sameAddress(at net.Addr, want string) bool {
	current, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return false
	}
	should, err := netip.ParseAddrPort(want)
	if err != nil {
		return false
	}
	same := current.Addr().Unmap() == should.Addr().Unmap() || current.Addr().IsUnspecified() &&
		should.Addr().IsUnspecified()
	return same && (should.Port() == 0 || should.Port() == current.Port())
}

// open opens sockets at an address. With port 0, it searches for a port that is free for both protocols.
func (s *sockets) open(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	for tries := 0; ; tries++ {
		conn, err := lc.ListenPacket(ctx, "udp", address)
		if err != nil {
			return err
		}
		udp := conn.(*net.UDPConn)
		ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)))
		if err == nil {
			s.udp, s.tcp = udp, ln.(*net.TCPListener)
			return nil
		}
		if err := errors.Join(err, conn.Close()); port != "0" || tries == 20 {
			return err
		}
	}
}

// prepare makes the kernel report the destination address of datagrams if the socket has no specific address. It also
// enlarges the receive buffer.
func (s *sockets) prepare() error {
	raw, err := s.udp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if s.address().Addr().IsUnspecified() {
			family, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
			if failed = err; err == nil && family == syscall.AF_INET6 {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			} else if err == nil {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			}
		}
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, receiveBuffer/4)
	})
	return errors.Join(err, failed)
}

// storeInSystemd passes the sockets to systemd for the next process.
func (s *sockets) storeInSystemd() error {
	udp, err := run.StoreSocket(storedUDP, s.udp)
	if err != nil {
		return err
	}
	tcp, err := run.StoreSocket(storedTCP, s.tcp)
	s.stored.Store(udp && tcp)
	return err
}

func (s *sockets) close() { _, _ = s.udp.Close(), s.tcp.Close() }

func (s *sockets) address() netip.AddrPort { return s.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// isSelf returns a function that reports whether queries to an address would come back to this server.
func (s *sockets) isSelf() (func(netip.Addr) bool, error) {
	at := s.address()
	own, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	return func(ip netip.Addr) bool {
		if at.Port() != 53 {
			return false
		}
		if !at.Addr().IsUnspecified() {
			return ip.Unmap() == at.Addr().Unmap()
		}
		return own[ip.Unmap()] || ip.IsLoopback()
	}, nil
}

// nodeName returns the given name, or the machine's host name if it is empty.
func nodeName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the node's name: %w", err)
	}
	return strings.ToLower(host), nil
}
