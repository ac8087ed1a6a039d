// Package ingress is kube-ingress, the proxy that Ingresses configure. It watches Ingresses and the objects that they
// refer to. It serves clients with the engine of package proxy, according to the tables of package route. It sends
// requests directly to the pods, whose addresses come from EndpointSlices.
package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/client"
	"clusterctl/daemons/client/presence"
	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/proxy"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// Run runs the proxy of one machine. It serves until ctx ends, and then until the running requests are complete, within
// time limits.
func Run(ctx context.Context, cfg config.Ingress, env run.Env) error {
	rest, err := client.Config(
		client.Options{
			Kubeconfig: cfg.Kubeconfig,
			APIServers: cfg.APIServers,
			UserAgent:  "ingress",
			Metrics:    env.Metrics,
		},
	)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	gateways, err := newGatewayAPI(rest)
	if err != nil {
		return err
	}
	kept, err := activation.ListenersWithNames()
	if err != nil {
		return fmt.Errorf("take the sockets that the service manager has kept: %w", err)
	}
	return serve(ctx, cfg, env, clients, gateways, kept)
}

// serve is Run with given clients and the kept sockets. gateways is nil without the Gateway API.
func serve(
	ctx context.Context,
	cfg config.Ingress,
	env run.Env,
	clients kubernetes.Interface,
	gateways *gatewayAPI,
	kept map[string][]net.Listener,
) error {
	sockets, err := openListeners(cfg, kept, env.Log)
	if err != nil {
		return err
	}
	defer sockets.close()
	engine, err := newEngine(cfg, env)
	if err != nil {
		return err
	}
	env.Metrics.MustRegister(engine)
	var ready, stopping atomic.Bool
	env.Health.AddReady("routes", func() error {
		switch {
		case stopping.Load():
			return errors.New("the daemon stops")
		case !ready.Load():
			return errors.New("the routes are not known yet")
		}
		return nil
	})
	// Keep watching the API until the last request is complete.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, inner := errgroup.WithContext(inner)
	if cfg.HealthAddress != "" {
		ln, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(inner, ln, env.Local(), nil, time.Second, env.Log) })
	}
	at := newEntrySockets(cfg, engine, kept, env.Log)
	defer at.close()
	w := newWatch(cfg, engine, at)
	w.secrets = newSecretWatcher(clients, env.Log, w.setSecret)
	routesReady := make(chan struct{})
	g.Go(func() error { return w.run(inner, clients, gateways, env.Log, func() { close(routesReady) }) })
	g.Go(func() error {
		defer stop()
		select {
		case <-inner.Done():
			return nil
		case <-ctx.Done():
			return nil
		case <-routesReady: // do not answer "no route" before the routes are known
		}
		return serveClients(ctx, inner, cfg, env, engine, at, sockets, func() { ready.Store(true) },
			func() { stopping.Store(true) })
	})
	g.Go(func() error {
		runStatusWriter(ctx, cfg, env, clients, gateways, w)
		return nil
	})
	if cfg.ServiceName != "" {
		p, err := publisher(cfg, env, clients)
		if err != nil {
			return err
		}
		p.Ready = func() error {
			if !ready.Load() || stopping.Load() {
				return errors.New("not serving")
			}
			return nil
		}
		g.Go(func() error { p.Run(ctx); return nil })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// drainTimeout limits the last requests after the proxy has stopped accepting connections.
const drainTimeout = 3 * time.Second

// serveClients serves clients until ctx ends. Then it reports not ready, but still accepts connections, with every
// response the last of its connection, until the requests that started before are complete. New clients thereby need
// not wait for long requests of others. Finally it stops accepting. New connections wait in the sockets, which the
// service manager keeps for the next process.
func serveClients(
	ctx, inner context.Context,
	cfg config.Ingress,
	env run.Env,
	engine *proxy.Engine,
	at *entrySockets,
	sockets *sockets,
	ready, stopping func(),
) error {
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	for _, s := range []struct {
		ln    *net.TCPListener
		entry *proxy.Entry
	}{{sockets.plain, at.plainEntry}, {sockets.secure, at.secureEntry}} {
		serving.Go(func() {
			if err := engine.Serve(s.ln, s.entry); !errors.Is(err, net.ErrClosed) &&
				!errors.Is(err, os.ErrDeadlineExceeded) {
				failed <- fmt.Errorf("accept connections on %s: %w", s.ln.Addr(), err)
			}
		})
	}
	env.Log.Info("serving", "http", sockets.plain.Addr(), "https", sockets.secure.Addr())
	ready()
	var err error
	select {
	case err = <-failed:
	case <-inner.Done():
	case <-ctx.Done():
	}
	stopping()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	engine.Drain(bound)
	sockets.stopAccepting()
	at.stopAccepting()
	serving.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	engine.Close(last)
	return err
}

func defaultPolicy(cfg config.Ingress) route.Policy {
	return route.Policy{
		Connect: cfg.ConnectTimeout, Read: cfg.ReadTimeout, Send: cfg.SendTimeout, MaxBody: int64(cfg.MaxBodyMiB) << 20,
		MinRate: int64(cfg.MinBodyRate), Protocol: route.HTTP, RedirectTLS: cfg.SSLRedirect,
	}
}

func newEngine(cfg config.Ingress, env run.Env) (*proxy.Engine, error) {
	own, err := fallbackCertificate()
	if err != nil {
		return nil, err
	}
	c := proxy.Config{
		Log: env.Log, DefaultCert: own, LeastConns: cfg.LoadBalance == config.LeastConnections,
		MaxHead: cfg.MaxHeadKiB << 10, HeadTime: cfg.HeadTimeout, Idle: cfg.IdleTimeout, UpstreamIdle: cfg.KeepTimeout,
		MaxIdle:   cfg.KeepIdle,
		HTTPSPort: cfg.HTTPSPort, MinTLS: tls.VersionTLS12, MaxStreams: 250, MaxConns: cfg.MaxConnections,
		ClientShare: cfg.ClientShare,
		Descriptors: maxDescriptors(), HandshakeTime: cfg.HeadTimeout,
	}
	if cfg.MinTLSVersion == "1.3" {
		c.MinTLS = tls.VersionTLS13
	}
	if cfg.AccessLog {
		c.AccessLog = os.Stdout
	}
	for _, one := range []struct {
		to   *[]netip.Prefix
		from []string
	}{{&c.Trusted, cfg.TrustedCIDRs}, {&c.ProxyFrom, cfg.ProxyFrom}} {
		for _, text := range one.from {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("read the networks that are trusted: %w", err)
			}
			*one.to = append(*one.to, p)
		}
	}
	return proxy.New(c), nil
}

// maxDescriptors returns the number of file descriptors that this process may open, or 0 if unknown. The Go runtime has
// already raised the limit as far as allowed.
func maxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// fallbackCertificate returns the certificate for clients that ask for a name without a certificate. No client trusts
// it.
func fallbackCertificate() (*tls.Certificate, error) {
	ca, err := certs.NewCA("kube-ingress", 0, time.Now())
	if err != nil {
		return nil, err
	}
	pair, err := certs.Issue(ca, certs.DaemonServer("ingress.invalid", nil), time.Now())
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate for names without one: %w", err)
	}
	return &cert, nil
}

func publisher(cfg config.Ingress, env run.Env, clients kubernetes.Interface) (*presence.Publisher, error) {
	namespace, service, ok := strings.Cut(cfg.ServiceName, "/")
	if !ok {
		return nil, fmt.Errorf("service name %q is not namespace/name", cfg.ServiceName)
	}
	p := &presence.Publisher{
		Client:    clients,
		Log:       env.Log,
		Namespace: namespace,
		Service:   service,
		Manager:   managedBy,
		Node:      cfg.NodeName,
	}
	for _, ip := range cfg.NodeIP {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("address of this machine: %w", err)
		}
		if slices.ContainsFunc(p.Addrs, func(other netip.Addr) bool { return other.Is4() == addr.Is4() }) {
			return nil, fmt.Errorf("addresses of this machine: %s are two of one family",
				strings.Join(cfg.NodeIP, " and "))
		}
		p.Addrs = append(p.Addrs, addr)
	}
	if len(p.Addrs) == 0 {
		return nil, errors.New(
			"--node-ip is missing: the addresses of this machine, of which the service has endpoints")
	}
	for name, port := range map[string]int{"http": cfg.HTTPPort, "https": cfg.HTTPSPort} {
		p.Ports = append(p.Ports, discoveryv1.EndpointPort{Name: ptr.To(name), Port: ptr.To(int32(port))})
	}
	if p.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the node's name: %w", err)
		}
		p.Node = strings.ToLower(host)
	}
	return p, nil
}

// managedBy is the value of the managed-by label of the proxies' EndpointSlices.
const managedBy = "ingress.clusterctl"
