package dashboard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// serverName is a name in every API server's certificate.
const serverName = "kubernetes"

// Run serves the dashboard of the cluster until ctx ends.
func Run(ctx context.Context, cfg config.Dashboard, env run.Env) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.SecurePort)))
	if err != nil {
		return fmt.Errorf("listen for visitors: %w", err)
	}
	return RunWith(ctx, cfg, env, ln)
}

// RunWith is like Run with a listener.
func RunWith(ctx context.Context, cfg config.Dashboard, env run.Env, ln net.Listener) error {
	defer ln.Close()
	env.IdleTasks.SetDense()
	api, err := anonymousConfig(cfg)
	if err != nil {
		return err
	}
	secured, err := run.ServerTLS(cfg.TLSCertFile, cfg.TLSPrivateKeyFile)
	if err != nil {
		return err
	}
	hosts := &hostNames{certificate: secured.GetCertificate, names: cfg.Hostnames}
	board := New(Config{API: api, SignIn: SignInByToken, Cluster: cfg.ClusterName, AllowHost: hosts.allow, TLS: true,
		Log: env.Log})
	env.Health.AddReady("certificate", func() error {
		if secured.GetCertificate == nil {
			return nil
		}
		_, err := secured.GetCertificate(nil)
		return err
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return run.Serve(ctx, ln, board, secured, time.Second, env.Log) })
	g.Go(func() error { board.Run(ctx); return nil })
	if cfg.HealthAddress != "" {
		health, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, health, env.Local(), nil, time.Second, env.Log) })
	}
	return g.Wait()
}

// anonymousConfig returns how to reach the API servers without credentials.
func anonymousConfig(cfg config.Dashboard) (*rest.Config, error) {
	api := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cfg.CertificateAuthority}}
	if cfg.Kubeconfig != "" {
		var err error
		api, err = client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, UserAgent: userAgent, Anonymous: true})
		if err != nil {
			return nil, err
		}
	}
	if len(cfg.APIServers) > 0 {
		d := &failover{servers: cfg.APIServers}
		api.Host, api.ServerName, api.Dial = "https://"+serverName+":6443", serverName, d.dial
	}
	return api, nil
}

// failoverTimeout limits an attempt to connect to one of several API servers.
const failoverTimeout = 3 * time.Second

// failover connects to the first of several API servers that accepts, and begins with the last one that did.
// Package client has a dialer that is better for watches of daemons, but not for upgraded connections.
type failover struct {
	servers []string
	working atomic.Int64
}

func (f *failover) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var errs []error
	first := int(f.working.Load())
	for i := range f.servers {
		at := (first + i) % len(f.servers)
		dialer := net.Dialer{Timeout: failoverTimeout, KeepAlive: 15 * time.Second}
		conn, err := dialer.DialContext(ctx, network, f.servers[at])
		if err == nil {
			f.working.Store(int64(at))
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// hostNames are the names and addresses at which visitors reach this server: those of its certificate, which may be
// renewed, and those that the configuration adds. The port does not matter, because a load balancer may change it.
type hostNames struct {
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error) // nil if it is self-signed
	names       []string

	cached atomic.Pointer[cachedNames]
}

type cachedNames struct {
	names []string
	until time.Time
}

// hostNamesLifetime is how long the names of the certificate are cached.
const hostNamesLifetime = 10 * time.Second

func (h *hostNames) allow(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if slices.Contains(h.names, host) {
		return true
	}
	cached := h.cached.Load()
	if now := time.Now(); cached == nil || now.After(cached.until) {
		cached = &cachedNames{h.certificateNames(), now.Add(hostNamesLifetime)}
		h.cached.Store(cached)
	}
	return slices.Contains(cached.names, host)
}

// certificateNames returns the names of the certificate. Those of a self-signed certificate are this machine's.
func (h *hostNames) certificateNames() []string {
	if h.certificate == nil {
		names := []string{"localhost", "127.0.0.1", "::1"}
		if name, err := os.Hostname(); err == nil {
			names = append(names, strings.ToLower(name))
		}
		return names
	}
	pair, err := h.certificate(nil)
	if err != nil || len(pair.Certificate) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil
	}
	var names []string
	for _, name := range leaf.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}
