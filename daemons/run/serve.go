package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/certs"
)

// Serve answers on ln with h until ctx ends, then gives open requests grace to
// finish. A nil tlsConfig serves plain HTTP.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, tlsConfig *tls.Config, grace time.Duration, log *slog.Logger) error {
	return ServeWith(ctx, NewServer(h, tlsConfig, log), ln, grace)
}

// NewServer returns a server with the limits that all of ours have.
func NewServer(h http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, TLSConfig: tlsConfig,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: connContext,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// ServeWith is Serve with a server of the caller's.
func ServeWith(ctx context.Context, server *http.Server, ln net.Listener, grace time.Duration) error {
	ln = new(Unidentified).Listen(ln)
	done := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			done <- server.ServeTLS(ln, "", "")
		} else {
			done <- server.Serve(ln)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(stop); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHealth serves the health endpoints and /metrics over TLS until ctx ends. Without
// a certificate file it makes a self-signed one, as upstream's daemons do; with port 0 it serves nothing.
// Metrics are for clients with a certificate of clientCAFile alone, when that is given; what the daemon tells of itself is always, and
// for those of the groups system:masters and system:monitoring. Profiles, where they are served, are for the former.
func (e Env) ServeHealth(ctx context.Context, address string, port int, certFile, keyFile, clientCAFile, clientCRLFile string, profiling bool) error {
	if port == 0 {
		<-ctx.Done()
		return nil
	}
	revoked, err := NewRevoked(clientCRLFile, clientCAFile, e.Log)
	if err != nil {
		return err
	}
	tlsConfig, err := serverTLS(certFile, keyFile, clientCAFile, revoked)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve health: %w", err)
	}
	open, pages := e.Handler(), e.Pages(profiling)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := len(r.TLS.VerifiedChains) > 0
		if (isPage(r.URL.Path) || r.URL.Path == "/metrics" && clientCAFile != "") && !known {
			http.Error(w, "a client certificate is needed", http.StatusUnauthorized)
			return
		}
		if known {
			VisitorOf(r.Context()).Identify()
		}
		// The handshake may be long ago.
		if err := revoked.verify(*r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if !isPage(r.URL.Path) {
			open.ServeHTTP(w, r)
			return
		}
		groups := r.TLS.VerifiedChains[0][0].Subject.Organization
		profile := strings.HasPrefix(r.URL.Path, "/debug/")
		if !slices.Contains(groups, "system:masters") && (profile || !slices.Contains(groups, "system:monitoring")) {
			http.Error(w, "Forbidden", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
	return Serve(ctx, ln, handler, tlsConfig, 2*time.Second, e.Log)
}

func serverTLS(certFile, keyFile, clientCAFile string, revoked *Revoked) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven}
	if certFile == "" {
		ca, err := certs.NewCA("localhost", 0, time.Now())
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(ca.Cert, ca.Key)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	} else {
		// Read at each handshake: a renewed certificate is used without a restart.
		cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
	}
	if clientCAFile != "" {
		text, err := os.ReadFile(clientCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the client CA: %w", err)
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("client CA %s has no certificate", clientCAFile)
		}
		cfg.VerifyConnection = revoked.verify
	}
	return cfg, nil
}
