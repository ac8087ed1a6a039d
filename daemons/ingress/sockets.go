package ingress

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/config"
)

// sockets are those that clients connect to. The service manager keeps them while the daemon restarts, so that connections
// that come meanwhile wait in them and none is lost.
type sockets struct{ plain, secure *net.TCPListener }

// listen takes the sockets that the service manager has kept, by name, and makes those that it has not.
func listen(cfg config.Ingress, kept map[string][]net.Listener, log *slog.Logger) (*sockets, error) {
	s := &sockets{}
	for _, one := range []struct {
		name string
		port int
		to   **net.TCPListener
	}{{"http", cfg.HTTPPort, &s.plain}, {"https", cfg.HTTPSPort, &s.secure}} {
		address := net.JoinHostPort(cfg.BindAddress, strconv.Itoa(one.port))
		for _, ln := range kept[one.name] {
			if tcp, ok := ln.(*net.TCPListener); ok && *one.to == nil && listensOn(tcp, cfg.BindAddress, one.port) {
				*one.to = tcp
				continue
			}
			_ = ln.Close()
		}
		if *one.to != nil {
			log.Info("serving on a socket that was kept", "name", one.name, "address", address)
			continue
		}
		if len(kept[one.name]) > 0 { // of another port
			if err := tellManager("FDSTOREREMOVE=1\nFDNAME="+one.name, nil); err != nil {
				log.Warn("have the service manager let a socket go", "name", one.name, "err", err)
			}
		}
		ln, err := net.Listen("tcp", address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("listen for clients: %w", err)
		}
		*one.to = ln.(*net.TCPListener)
		if err := keep(one.name, *one.to); err != nil {
			log.Warn("have the service manager keep a socket: connections may be lost at a restart", "name", one.name, "err", err)
		}
	}
	return s, nil
}

func listensOn(ln *net.TCPListener, host string, port int) bool {
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

// keep gives a socket to the service manager, which hands it to the next process.
func keep(name string, ln *net.TCPListener) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at the socket: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = tellManager("FDSTORE=1\nFDNAME="+name, []int{int(fd)}) })
	if err == nil {
		err = failed
	}
	return err
}

// tellManager writes to systemd, where that is there.
func tellManager(text string, files []int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	nc, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("reach the service manager: %w", err)
	}
	defer nc.Close()
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	// A connected socket is written to without an address.
	raw, err := nc.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach the service manager: %w", err)
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), []byte(text), rights, nil, 0)
		return failed != unix.EAGAIN
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("write to the service manager: %w", err)
	}
	return nil
}

// stopAccepting ends Accept. The sockets stay open: what comes waits in them.
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
