package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/proxy"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/ingress/route/gateway"
	"clusterctl/daemons/run"
)

// entrySockets manages the entries of the engine. Two entries serve Ingresses, and also Gateways if Gateways share the
// machines' addresses. A Gateway with its own addresses has one entry for each of its ports. Its clients come through a
// service, which names a port of the machines.
type entrySockets struct {
	cfg                     config.Ingress
	engine                  *proxy.Engine
	log                     *slog.Logger
	plainEntry, secureEntry *proxy.Entry

	mu        sync.Mutex
	inherited map[string][]net.Listener // sockets kept by the service manager that no entry has taken yet, by name
	sockets   map[gateway.Entry]*entrySocket
	stopping  bool
	wg        sync.WaitGroup
}

// entrySocket is one entry. Its socket is nil if none could be opened.
type entrySocket struct {
	entry  *proxy.Entry
	secure bool
	port   int // port of the machine; 0 if not known yet
	ln     *net.TCPListener
	err    error
}

// socketPrefix is the name prefix of these sockets; the port follows.
const socketPrefix = "gateway-"

func newEntrySockets(cfg config.Ingress, engine *proxy.Engine, kept map[string][]net.Listener,
	log *slog.Logger) *entrySockets {
	f := &entrySockets{
		cfg: cfg, engine: engine, log: log, plainEntry: engine.Open(false, cfg.HTTPPort),
		secureEntry: engine.Open(true, cfg.HTTPSPort),
		inherited:   map[string][]net.Listener{}, sockets: map[gateway.Entry]*entrySocket{},
	}
	for name, list := range kept {
		if strings.HasPrefix(name, socketPrefix) {
			f.inherited[name] = list
		}
	}
	return f
}

// setTables sets the tables of the entries.
func (f *entrySockets) setTables(ingresses *route.Table, served map[gateway.Entry]*gateway.Served) {
	for _, one := range []struct {
		at   *proxy.Entry
		port int
	}{{f.plainEntry, f.cfg.HTTPPort}, {f.secureEntry, f.cfg.HTTPSPort}} {
		table := ingresses
		if s := served[gateway.Entry{Port: one.port}]; s != nil {
			table = table.WithListeners(s.Listeners)
		}
		one.at.SetTable(table)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for entry, own := range f.sockets {
		if s := served[entry]; s == nil || s.Secure != own.secure {
			f.closeEntry(entry)
		}
	}
	for entry, s := range served {
		if entry.Gateway.Name == "" {
			continue
		}
		if f.sockets[entry] == nil {
			f.sockets[entry] = &entrySocket{entry: f.engine.Open(s.Secure, entry.Port), secure: s.Secure}
		}
		f.sockets[entry].entry.SetTable((&route.Table{}).WithListeners(s.Listeners))
	}
}

// openSockets opens the sockets of the entries at their ports of the machine. ports lacks entries whose port is not
// assigned yet.
func (f *entrySockets) openSockets(served map[gateway.Entry]*gateway.Served, ports map[gateway.Entry]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for entry, own := range f.sockets {
		port := ports[entry]
		if own.port == port && own.err == nil || f.stopping {
			continue
		}
		if own.ln != nil { // its port has changed
			f.closeEntry(entry)
			s := served[entry]
			own = &entrySocket{entry: f.engine.Open(s.Secure, entry.Port), secure: s.Secure}
			own.entry.SetTable((&route.Table{}).WithListeners(s.Listeners))
			f.sockets[entry] = own
		}
		if own.port = port; port == 0 {
			continue
		}
		if own.ln, own.err = f.listen(entry, port); own.err != nil {
			f.log.Warn("listen for a Gateway", "gateway", entry.Gateway, "port", entry.Port, "err", own.err)
			continue
		}
		ln, at := own.ln, own.entry
		f.wg.Go(func() {
			if err := f.engine.Serve(ln, at); !errors.Is(err, net.ErrClosed) &&
				!errors.Is(err, os.ErrDeadlineExceeded) {
				f.log.Error("accept connections of a Gateway", "address", ln.Addr(), "err", err)
			}
		})
	}
}

// socketName returns the name of an entry's socket. The next process recognizes the entry by the name.
func socketName(entry gateway.Entry, port int) string {
	sum := sha256.Sum256([]byte(entry.Gateway.String() + ":" + strconv.Itoa(entry.Port)))
	return socketPrefix + strconv.Itoa(port) + "-" + hex.EncodeToString(sum[:5])
}

// isServed reports whether an entry is served on a port of the machine, or was by the previous process.
func (f *entrySockets) isServed(entry gateway.Entry, port int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.sockets[entry]
	return own != nil && own.ln != nil && own.port == port || len(f.inherited[socketName(entry, port)]) > 0
}

func (f *entrySockets) listen(entry gateway.Entry, port int) (*net.TCPListener, error) {
	name, former := socketName(entry, port), socketPrefix+strconv.Itoa(
		port,
	) // the name in earlier releases, which does not identify the entry
	found := f.takeInherited(name, port)
	if found != nil {
		return found, nil
	}
	if found = f.takeInherited(former, port); found != nil {
		defer f.releaseStored(former)
	} else {
		ln, err := net.Listen("tcp", net.JoinHostPort(f.cfg.BindAddress, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("listen for clients: %w", err)
		}
		found = ln.(*net.TCPListener)
	}
	if _, err := run.StoreSocket(name, found); err != nil {
		f.log.Warn("have the service manager keep a socket: connections may be lost at a restart", "name", name, "err",
			err)
	}
	return found, nil
}

// takeInherited takes the kept socket with a name. It returns nil if none listens on the port.
func (f *entrySockets) takeInherited(name string, port int) (found *net.TCPListener) {
	kept := f.inherited[name]
	delete(f.inherited, name)
	for _, ln := range kept {
		if tcp, ok := ln.(*net.TCPListener); ok && found == nil && hasAddress(tcp, f.cfg.BindAddress, port) {
			found = tcp
			continue
		}
		_ = ln.Close()
	}
	return found
}

// closeEntry closes an entry for good. The caller holds mu.
func (f *entrySockets) closeEntry(entry gateway.Entry) {
	own := f.sockets[entry]
	delete(f.sockets, entry)
	own.entry.Close()
	if own.ln == nil {
		return
	}
	f.releaseStored(socketName(entry, own.port))
	_ = own.ln.Close()
}

func (f *entrySockets) releaseStored(name string) {
	if err := run.CloseStored(name); err != nil {
		f.log.Warn("have the service manager let a socket go", "name", name, "err", err)
	}
}

// closeUnused closes the kept sockets that no entry uses. It is called once all Gateways are known.
func (f *entrySockets) closeUnused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, list := range f.inherited {
		f.releaseStored(name)
		for _, ln := range list {
			_ = ln.Close()
		}
	}
	clear(f.inherited)
}

// hasFailed reports whether opening the socket of an entry has failed.
func (f *entrySockets) hasFailed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, own := range f.sockets {
		if own.err != nil {
			return true
		}
	}
	return false
}

// openError returns why clients cannot connect to an entry, or nil if they can.
func (f *entrySockets) openError(entry gateway.Entry) error {
	if entry.Gateway.Name == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch own := f.sockets[entry]; {
	case own == nil || own.port == 0:
		return errors.New("the machines have no port for it yet")
	default:
		return own.err
	}
}

// stopAccepting stops accepting connections. They wait in the sockets' backlogs.
func (f *entrySockets) stopAccepting() {
	f.mu.Lock()
	f.stopping = true
	for _, own := range f.sockets {
		if own.ln != nil {
			_ = own.ln.SetDeadline(time.Unix(1, 0))
		}
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// close closes the sockets in this process. The service manager keeps its copies.
func (f *entrySockets) close() {
	f.stopAccepting()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, own := range f.sockets {
		if own.ln != nil {
			_ = own.ln.Close()
		}
	}
}
