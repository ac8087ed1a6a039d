package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/proxy/rules"
)

// MaxConnections limits the concurrent connections. Further ones are refused.
const MaxConnections = 32768

// dialWaits are the time limits of successive attempts to connect to an endpoint. A slow endpoint is tried again with
// more time.
var dialWaits = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// TCP forwards connections that packet rules have redirected to a listener.
type TCP struct {
	Listener *net.TCPListener
	Resolve  func(client, to netip.AddrPort) (rules.Candidates, bool)
	Turns    *Turns
	Log      *slog.Logger
}

// Serve forwards connections until ctx ends, and then closes them.
func (s *TCP) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.Listener.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, MaxConnections)
	wait := 5 * time.Millisecond
	for {
		c, err := s.Listener.AcceptTCP()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections: %w", err)
		case err != nil: // out of file descriptors: wait until a connection ends
			s.Log.Warn("accept connections for services", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, time.Second)
			continue
		}
		wait = 5 * time.Millisecond
		select {
		case room <- struct{}{}:
			all.Go(func() {
				defer func() { <-room }()
				s.serveConnection(ctx, c)
			})
		default:
			resetConnection(c)
		}
	}
}

// resetConnection resets a connection, so that its client does not mistake the end for a complete response.
func resetConnection(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}

func (s *TCP) serveConnection(ctx context.Context, client *net.TCPConn) {
	to, err := originalDestination(client)
	if err != nil {
		resetConnection(client)
		return
	}
	from := unmapAddress(client.RemoteAddr().(*net.TCPAddr).AddrPort())
	way, ok := s.Resolve(from, to)
	if !ok {
		resetConnection(client)
		return
	}
	endpoint, err := s.dialNext(ctx, way, from.Addr())
	if err != nil {
		s.Log.Warn("no endpoint accepts a connection", "service", way.Key, "error", err)
		resetConnection(client)
		return
	}
	stop := context.AfterFunc(ctx, func() { resetConnection(client); endpoint.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { copyStream(endpoint, client) })
	both.Go(func() { copyStream(client, endpoint) })
	both.Wait()
	client.Close()
	endpoint.Close()
}

// dialNext connects to the next endpoint that accepts.
func (s *TCP) dialNext(ctx context.Context, way rules.Candidates, client netip.Addr) (*net.TCPConn, error) {
	failed := map[netip.AddrPort]bool{}
	failure := errors.New("there is none")
	for _, wait := range dialWaits {
		to, ok := s.Turns.Next(way, client, failed)
		if !ok {
			break
		}
		d := net.Dialer{Timeout: wait}
		c, err := d.DialContext(ctx, "tcp", to.String())
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		failure = err
		if len(way.Endpoints) > 1 {
			failed[to] = true
		}
	}
	return nil, failure
}

// copyStream copies from one connection to another, including the half-close. An error resets both. Keep-alives detect
// dead peers.
func copyStream(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil {
		resetConnection(to)
		resetConnection(from)
		return
	}
	_ = to.CloseWrite()
}

// originalDestination returns the destination of a connection before it was redirected.
func originalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	var failure error
	err = raw.Control(func(fd uintptr) {
		if unmapAddress(local).Addr().Is4() {
			// The kernel's struct sockaddr_in fits into the address field of this type.
			var in *unix.IPv6Mreq
			if in, failure = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); failure == nil {
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(in.Multiaddr[4:8])),
					binary.BigEndian.Uint16(in.Multiaddr[2:4]))
			}
			return
		}
		var in *unix.IPv6MTUInfo
		if in, failure = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); failure == nil {
			to = netip.AddrPortFrom(netip.AddrFrom16(in.Addr.Addr), in.Addr.Port<<8|in.Addr.Port>>8)
		}
	})
	if err = errors.Join(err, failure); err != nil {
		return to, fmt.Errorf("find where a connection was sent to: %w", err)
	}
	if to == unmapAddress(local) {
		return to, errors.New("it was sent to the proxy itself")
	}
	return to, nil
}

// unmapAddress returns an IPv4-mapped IPv6 address, the form of dual-stack sockets, as an IPv4 address.
func unmapAddress(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
