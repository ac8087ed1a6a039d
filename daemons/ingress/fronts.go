package ingress

import (
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
)

// fronts are the entries of the engine: the two that Ingresses have, which Gateways share when they have the machines' addresses, and
// one for each port of a Gateway that has addresses of its own. Those of the latter come by a service, which names a port of the machines.
type fronts struct {
	cfg           config.Ingress
	engine        *proxy.Engine
	log           *slog.Logger
	plain, secure *proxy.Entry

	mu       sync.Mutex
	kept     map[string][]net.Listener // sockets that the service manager has kept, and nobody has taken yet
	own      map[gateway.Entry]*door
	stopping bool
	wg       sync.WaitGroup
}

// door is one entry. Its socket is nil when none could be opened.
type door struct {
	entry  *proxy.Entry
	secure bool
	port   int // of the machine; 0: not known yet
	ln     *net.TCPListener
	err    error
}

// ownSocket is what the names of such sockets begin with; the port comes after it.
const ownSocket = "gateway-"

func newFronts(cfg config.Ingress, engine *proxy.Engine, kept map[string][]net.Listener, log *slog.Logger) *fronts {
	f := &fronts{
		cfg: cfg, engine: engine, log: log, plain: engine.Open(false, cfg.HTTPPort), secure: engine.Open(true, cfg.HTTPSPort),
		kept: map[string][]net.Listener{}, own: map[gateway.Entry]*door{},
	}
	for name, list := range kept {
		if strings.HasPrefix(name, ownSocket) {
			f.kept[name] = list
		}
	}
	return f
}

// serve gives the entries what they serve.
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

// place opens the sockets of the ports that the entries have on the machines. portOf returns 0 for one that has none yet.
func (f *fronts) place(served map[gateway.Entry]*gateway.Served, portOf func(gateway.Entry) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for entry, own := range f.own {
		port := portOf(entry)
		if own.port == port && own.err == nil || f.stopping {
			continue
		}
		if own.ln != nil { // it moved
			f.shut(entry)
			s := served[entry]
			own = &door{entry: f.engine.Open(s.Secure, entry.Port), secure: s.Secure}
			own.entry.SetTable((&route.Table{}).WithListeners(s.Listeners))
			f.own[entry] = own
		}
		if own.port = port; port == 0 {
			continue
		}
		if own.ln, own.err = f.listen(port); own.err != nil {
			f.log.Warn("listen for a Gateway", "gateway", entry.Gateway, "port", entry.Port, "err", own.err)
			continue
		}
		ln, at := own.ln, own.entry
		f.wg.Go(func() {
			if err := f.engine.Serve(ln, at); !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				f.log.Error("accept connections of a Gateway", "address", ln.Addr(), "err", err)
			}
		})
	}
}

func (f *fronts) listen(port int) (*net.TCPListener, error) {
	name := ownSocket + strconv.Itoa(port)
	kept := f.kept[name]
	delete(f.kept, name)
	var found *net.TCPListener
	for _, ln := range kept {
		if tcp, ok := ln.(*net.TCPListener); ok && found == nil && listensOn(tcp, f.cfg.BindAddress, port) {
			found = tcp
			continue
		}
		_ = ln.Close()
	}
	if found != nil {
		return found, nil
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(f.cfg.BindAddress, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	tcp := ln.(*net.TCPListener)
	if err := keep(name, tcp); err != nil {
		f.log.Warn("have the service manager keep a socket: connections may be lost at a restart", "name", name, "err", err)
	}
	return tcp, nil
}

// shut ends an entry for good. It is called with mu.
func (f *fronts) shut(entry gateway.Entry) {
	own := f.own[entry]
	delete(f.own, entry)
	own.entry.Close()
	if own.ln == nil {
		return
	}
	f.letGo(ownSocket + strconv.Itoa(own.port))
	_ = own.ln.Close()
}

func (f *fronts) letGo(name string) {
	if err := tellManager("FDSTOREREMOVE=1\nFDNAME="+name, nil); err != nil {
		f.log.Warn("have the service manager let a socket go", "name", name, "err", err)
	}
}

// forgetKept closes the sockets of a former process that no entry uses, once all Gateways are known.
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

// lacking reports whether some entry has no socket because opening it failed.
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

// failed returns why clients cannot connect to an entry, nil when they can.
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

// stopAccepting has connections wait in the sockets from now on.
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

// close closes the sockets here. The service manager has those that it keeps.
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
