package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/sealed"
)

// shutdownGrace is how long open requests may take to finish when the server stops.
const shutdownGrace = 20 * time.Second

// Run runs the daemon kube-apiserver, as cfg describes, until ctx ends.
func Run(ctx context.Context, cfg config.APIServer, env run.Env) error {
	s, err := etcd.Open(
		etcd.Config{
			Endpoints: cfg.EtcdServers,
			CAFile:    cfg.EtcdCAFile,
			CertFile:  cfg.EtcdCertFile,
			KeyFile:   cfg.EtcdKeyFile,
		},
	)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // all writes have been answered, so nothing is lost
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.SecurePort)))
	if err != nil {
		return fmt.Errorf("serve the API on %s port %d: %w", cfg.BindAddress, cfg.SecurePort, err)
	}
	return Serve(ctx, cfg, s, ln, env)
}

// Serve is like Run, with an existing store and listener.
func Serve(ctx context.Context, cfg config.APIServer, s store.Store, ln net.Listener, env run.Env) error {
	if addr, ok := ln.Addr().(*net.TCPAddr); ok && cfg.SecurePort == 0 {
		cfg.SecurePort = addr.Port
	}
	server, err := Assemble(cfg, s, env)
	if err != nil {
		_ = ln.Close() // the first error matters
		return err
	}
	tlsConfig, err := servingTLS(cfg)
	if err != nil {
		_ = ln.Close() // as above
		return err
	}
	probed, err := listenHealthz(ctx, cfg)
	if err != nil {
		_ = ln.Close() // as above
		return err
	}
	if s, ok := server.options.Storage.raw.(*sealed.Store); ok {
		defer s.Close()
	}
	env.Log.Info("serving the API", "address", ln.Addr().String(), "version", Version().GitVersion)
	defer server.audit.run(ctx, env.Log)()
	g, ctx := errgroup.WithContext(ctx)
	drained, endDrain := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return server.RunUntil(ctx, drained) })
	g.Go(func() error {
		defer endDrain()
		return serve(ctx, ln, server, tlsConfig, env.Log)
	})
	if probed != nil {
		g.Go(func() error { return run.Serve(ctx, probed, server.pages.health(), nil, time.Second, env.Log) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listenHealthz returns the listener for health checks without credentials; nil if none is configured.
func listenHealthz(ctx context.Context, cfg config.APIServer) (net.Listener, error) {
	if cfg.HealthzBindAddress == "" {
		return nil, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HealthzBindAddress)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	return ln, nil
}

// serve answers requests on ln until ctx ends. Package h2 serves HTTP/2, and net/http everything else.
func serve(ctx context.Context, ln net.Listener, s *Server, tlsConfig *tls.Config, log *slog.Logger) error {
	server := run.NewServer(s, tlsConfig, log)
	server.MaxHeaderBytes = 128 << 10
	server.ErrorLog = countHandshakes(s.metrics.handshakes, server.ErrorLog)
	own := h2.Server{
		Log:            log,
		ServeFast:      s.serveFast,
		MaxHeaderBytes: http.DefaultMaxHeaderBytes,
	} // URLs may contain long selectors
	own.Attach(server)
	defer own.Close()
	return run.ServeWith(ctx, server, own.Listen(ln), shutdownGrace)
}

// advertisedAddress returns the address at which the cluster reaches this server: the configured address, the listening
// address, or the source address of the default route.
func advertisedAddress(cfg config.APIServer) string {
	if cfg.AdvertiseAddress != "" {
		return cfg.AdvertiseAddress
	}
	if addr, err := netip.ParseAddr(cfg.BindAddress); err == nil && !addr.IsUnspecified() {
		return addr.String()
	}
	// No packet is sent: connecting a UDP socket only looks up the route.
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return ""
	}
	return host
}

// servingTLS returns the server's TLS configuration. It requests client certificates, which the authenticators verify.
func servingTLS(cfg config.APIServer) (*tls.Config, error) {
	pair, err := newCertificateFile(cfg.TLSCertFile, cfg.TLSPrivateKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() },
	}, nil
}

// kubeletTLS returns the TLS configuration for connections to kubelets, and a function that returns the current
// authorities. Both are nil without a configured CA.
func kubeletTLS(cfg config.APIServer) (*tls.Config, func() *x509.CertPool, error) {
	if cfg.KubeletCertificateAuthority == "" {
		return nil, nil, nil
	}
	authorities, err := run.NewAuthorities(cfg.KubeletCertificateAuthority)
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA of kubelets: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authorities.Pool()}
	if cfg.KubeletClientCertificate != "" {
		pair, err := newCertificateFile(cfg.KubeletClientCertificate, cfg.KubeletClientKey)
		if err != nil {
			return nil, nil, fmt.Errorf("read the client certificate towards kubelets: %w", err)
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	return out, authorities.Pool, nil
}

// readCA returns the cluster's certificate authorities. It reads the file on every call, because a rotation replaces
// it. It returns nil if the file cannot be read.
func readCA(path string) []byte {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text
}
