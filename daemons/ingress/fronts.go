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

// fronts manages the entries of the engine. Two entries serve Ingresses, and also Gateways if Gateways share the
// machines' addresses. A Gateway with its own addresses has one entry for each of its ports. Its clients come through a
// service, which names a port of the machines.
type fronts struct {
	cfg           config.Ingress
	engine        *proxy.Engine
	log           *slog.Logger
	plain, secure *proxy.Entry

	mu       sync.Mutex
	kept     map[string][]net.Listener // sockets kept by the service manager that no entry has taken yet, by name
	own      map[gateway.Entry]*door
	stopping bool
	wg       sync.WaitGroup
}

// door is one entry. Its socket is nil if none could be opened.
type door struct {
	entry  *proxy.Entry
	secure bool
	port   int // port of the machine; 0 if not known yet
	ln     *net.TCPListener
	err    error
}

// ownSocket is the name prefix of these sockets; the port follows.
const ownSocket = "gateway-"

func newFronts(cfg config.Ingress, engine *proxy.Engine, kept map[string][]net.Listener, log *slog.Logger) *fronts {
	f := &fronts{
		cfg: cfg, engine: engine, log: log, plain: engine.Open(false, cfg.HTTPPort),
		secure: engine.Open(true, cfg.HTTPSPort),
		kept:   map[string][]net.Listener{}, own: map[gateway.Entry]*door{},
	}
	for name, list := range kept {
		if strings.HasPrefix(name, ownSocket) {
			f.kept[name] = list
		}
	}
	return f
}

// serve sets the tables of the entries.
func (f *fronts) serve(ingresses *route.Table, served map[gateway.Entry]*gateway.Served) {
	for _, one := range []struct {
		at   *proxy.Entry
		port int
	}{{f.plain, f.cfg.HTTPPort}, {f.secure, f.cfg.HTTPSPort}} {
		table := ingresses
		if s := served[gateway.Entry{Port: one.port}]; s != nil {
			table = table.WithListeners(s.Listeners)
		}
		one.at.SetTable(table)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for entry, own := range f.own {
		if s := served[entry]; s == nil || s.Secure != own.secure {
			f.shut(entry)
		}
	}
	for entry, s := range served {
		if entry.Gateway.Name == "" {
			continue
		}
		if f.own[entry] == nil {
			f.own[entry] = &door{entry: f.engine.Open(s.Secure, entry.Port), secure: s.Secure}
		}
		f.own[entry].entry.SetTable((&route.Table{}).WithListeners(s.Listeners))
	}
}

// place opens the sockets of the entries at their ports of the machine. ports lacks entries whose port is not assigned
// yet.
func (f *fronts) place(served map[gateway.Entry]*gateway.Served, ports map[gateway.Entry]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for entry, own := range f.own {
		port := ports[entry]
		if own.port == port && own.err == nil || f.stopping {
			continue
		}
		if own.ln != nil { // its port has changed
			f.shut(entry)
			s := served[entry]
			own = &door{entry: f.engine.Open(s.Secure, entry.Port), secure: s.Secure}
			own.entry.SetTable((&route.Table{}).WithListeners(s.Listeners))
			f.own[entry] = own
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

// socketOf returns the name of an entry's socket. The next process recognizes the entry by the name.
func socketOf(entry gateway.Entry, port int) string {
	sum := sha256.Sum256([]byte(entry.Gateway.String() + ":" + strconv.Itoa(entry.Port)))
	return ownSocket + strconv.Itoa(port) + "-" + hex.EncodeToString(sum[:5])
}

// has reports whether an entry is served on a port of the machine, or was by the previous process.
func (f *fronts) has(entry gateway.Entry, port int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.own[entry]
	return own != nil && own.ln != nil && own.port == port || len(f.kept[socketOf(entry, port)]) > 0
}

func (f *fronts) listen(entry gateway.Entry, port int) (*net.TCPListener, error) {
	name, former := socketOf(
		entry,
		port,
	), ownSocket+strconv.Itoa(
		port,
	) // the name in earlier releases, which does not identify the entry
	found := f.take(name, port)
	if found != nil {
		return found, nil
	}
	if found = f.take(former, port); found != nil {
		defer f.letGo(former)
	} else {
		ln, err := net.Listen("tcp", net.JoinHostPort(f.cfg.BindAddress, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("listen for clients: %w", err)
		}
		found = ln.(*net.TCPListener)
	}
	if _, err := run.Keep(name, found); err != nil {
		f.log.Warn(
			"have the service manager keep a socket: connections may be lost at a restart",
			"name",
			name,
			"err",
			err,
		)
	}
	return found, nil
}

// take takes the kept socket with a name. It returns nil if none listens on the port.
func (f *fronts) take(name string, port int) (found *net.TCPListener) {
	kept := f.kept[name]
	delete(f.kept, name)
	for _, ln := range kept {
		if tcp, ok := ln.(*net.TCPListener); ok && found == nil && listensOn(tcp, f.cfg.BindAddress, port) {
			found = tcp
			continue
		}
		_ = ln.Close()
	}
	return found
}

// shut closes an entry for good. The caller holds mu.
func (f *fronts) shut(entry gateway.Entry) {
	own := f.own[entry]
	delete(f.own, entry)
	own.entry.Close()
	if own.ln == nil {
		return
	}
	f.letGo(socketOf(entry, own.port))
	_ = own.ln.Close()
}

func (f *fronts) letGo(name string) {
	if err := run.Drop(name); err != nil {
		f.log.Warn("have the service manager let a socket go", "name", name, "err", err)
	}
}

// forgetKept closes the kept sockets that no entry uses. It is called once all Gateways are known.
func (f *fronts) forgetKept() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, list := range f.kept {
		f.letGo(name)
		for _, ln := range list {
			_ = ln.Close()
		}
	}
	clear(f.kept)
}

// lacking reports whether opening the socket of an entry has failed.
func (f *fronts) lacking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, own := range f.own {
		if own.err != nil {
			return true
		}
	}
	return false
}

// failed returns why clients cannot connect to an entry, or nil if they can.
func (f *fronts) failed(entry gateway.Entry) error {
	if entry.Gateway.Name == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch own := f.own[entry]; {
	case own == nil || own.port == 0:
		return errors.New("the machines have no port for it yet")
	default:
		return own.err
	}
}

// stopAccepting stops accepting connections. They wait in the sockets' backlogs.
func (f *fronts) stopAccepting() {
	f.mu.Lock()
	f.stopping = true
	for _, own := range f.own {
		if own.ln != nil {
			_ = own.ln.SetDeadline(time.Unix(1, 0))
		}
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// close closes the sockets in this process. The service manager keeps its copies.
func (f *fronts) close() {
	f.stopAccepting()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, own := range f.own {
		if own.ln != nil {
			_ = own.ln.Close()
		}
	}
}
