package ingress

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// sockets are the sockets for clients. The service manager keeps them during a restart of the daemon. New connections
// wait in them, so that none is lost.
type sockets struct{ plain, secure *net.TCPListener }

// openListeners takes the kept sockets of the service manager by name, and opens the missing ones.
func openListeners(cfg config.Ingress, kept map[string][]net.Listener, log *slog.Logger) (*sockets, error) {
	s := &sockets{}
	for _, one := range []struct {
		name string
		port int
		to   **net.TCPListener
	}{{"http", cfg.HTTPPort, &s.plain}, {"https", cfg.HTTPSPort, &s.secure}} {
		address := net.JoinHostPort(cfg.BindAddress, strconv.Itoa(one.port))
		for _, ln := range kept[one.name] {
			if tcp, ok := ln.(*net.TCPListener); ok && *one.to == nil && hasAddress(tcp, cfg.BindAddress, one.port) {
				*one.to = tcp
				continue
			}
			_ = ln.Close()
		}
		if *one.to != nil {
			log.Info("serving on a socket that was kept", "name", one.name, "address", address)
			continue
		}
		if len(kept[one.name]) > 0 { // they listen on another port
			if err := run.CloseStored(one.name); err != nil {
				log.Warn("have the service manager let a socket go", "name", one.name, "err", err)
			}
		}
		ln, err := net.Listen("tcp", address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("listen for clients: %w", err)
		}
		*one.to = ln.(*net.TCPListener)
		if _, err := run.StoreSocket(one.name, *one.to); err != nil {
			log.Warn("have the service manager keep a socket: connections may be lost at a restart", "name", one.name,
				"err", err)
		}
	}
	return s, nil
}

func hasAddress(ln *net.TCPListener, host string, port int) bool {
	at, err := netip.ParseAddrPort(ln.Addr().String())
	if err != nil || int(at.Port()) != port {
		return false
	}
	if host == "" {
		return at.Addr().IsUnspecified()
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap() == at.Addr().Unmap()
}

// stopAccepting stops accepting connections. The sockets stay open, and new connections wait in them.
func (s *sockets) stopAccepting() {
	for _, ln := range []*net.TCPListener{s.plain, s.secure} {
		_ = ln.SetDeadline(time.Unix(1, 0))
	}
}

func (s *sockets) close() {
	for _, ln := range []*net.TCPListener{s.plain, s.secure} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}
