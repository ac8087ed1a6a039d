package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/provision/host"
)

// namespaceDir is the directory in which container runtimes keep the pods' network namespaces.
const namespaceDir = "/run/netns"

// sendTraced sends the traced packet from the pod with the address q.From, and waits for the outcome.
func sendTraced(q host.Trace) (outcome, reason string, local netip.AddrPort) {
	type result struct {
		outcome, reason string
		local           netip.AddrPort
	}
	done := make(chan result)
	go func() {
		// The thread stays locked, so that it ends with this goroutine and never runs other code in the namespace.
		runtime.LockOSThread()
		var r result
		if q.From.IsValid() {
			if err := enterNamespace(q.From); err != nil {
				done <- result{outcome: host.OutcomeFailed, reason: err.Error()}
				return
			}
		}
		outcome, local, err := tryConnect(q)
		r.outcome, r.local = outcome, local
		if err != nil {
			r.reason = err.Error()
		}
		done <- r
	}()
	r := <-done
	return r.outcome, r.reason, r.local
}

// enterNamespace moves the current thread into the network namespace that has an address. It stays in the machine's own
// namespace if that has the address.
func enterNamespace(a netip.Addr) error {
	if hasAddress(a) {
		return nil
	}
	names, err := os.ReadDir(namespaceDir)
	if err != nil {
		return fmt.Errorf("look for the pod's network: %w", err)
	}
	for _, name := range names {
		f, err := os.Open(filepath.Join(namespaceDir, name.Name()))
		if err != nil {
			continue // the namespace has just been removed
		}
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		_ = f.Close()
		if err == nil && hasAddress(a) {
			return nil
		}
	}
	return fmt.Errorf("no pod on this machine has the address %s", a)
}

// hasAddress reports whether an interface in the thread's network namespace has an address.
func hasAddress(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, l := range list {
		if p, err := netip.ParsePrefix(l.String()); err == nil && p.Addr().Unmap() == a.Unmap() {
			return true
		}
	}
	return false
}

// tryConnect connects, or sends a datagram, and waits for the outcome. It stops waiting shortly before the other
// machines stop watching.
func tryConnect(q host.Trace) (outcome string, local netip.AddrPort, err error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if q.To.Addr().Is6() {
		family = unix.AF_INET6
	}
	if q.Protocol == host.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return host.OutcomeFailed, local, fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, toSockaddr(q.To))
	if at, nameErr := unix.Getsockname(fd); nameErr == nil {
		local = toAddrPort(at)
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return outcomeOf(err), local, err
	}
	wanted := int16(unix.POLLOUT)
	if q.Protocol == host.UDP {
		wanted = unix.POLLIN
		if _, err := unix.Write(fd, binary.BigEndian.AppendUint32(nil, q.Mark)); err != nil {
			return outcomeOf(err), local, err
		}
	}
	for deadline := time.Now().Add(q.Duration * 3 / 4); time.Now().Before(deadline); {
		poll := []unix.PollFd{{Fd: int32(fd), Events: wanted}}
		n, err := unix.Poll(poll, int(time.Until(deadline).Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return host.OutcomeFailed, local, fmt.Errorf("wait for an answer: %w", err)
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			return outcomeOf(err), local, err
		}
		return host.OutcomeConnected, local, nil
	}
	return host.OutcomeSilent, local, nil
}

func outcomeOf(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return host.OutcomeRefused
	case errors.Is(err, unix.ETIMEDOUT):
		return host.OutcomeSilent
	}
	return host.OutcomeFailed
}

func toSockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func toAddrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
