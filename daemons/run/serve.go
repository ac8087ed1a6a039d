package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/api"
)

// Serve serves h on ln until ctx ends, then gives open requests the time grace to finish. If tlsConfig is nil it serves
// plain HTTP.
func Serve(
	ctx context.Context,
	ln net.Listener,
	h http.Handler,
	tlsConfig *tls.Config,
	grace time.Duration,
	log *slog.Logger,
) error {
	return ServeWith(ctx, NewServer(h, tlsConfig, log), ln, grace)
}

// NewServer returns a server with the limits that all daemons use.
func NewServer(h http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, TLSConfig: tlsConfig,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: connContext,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// ServeWith is like Serve with the caller's own server.
func ServeWith(ctx context.Context, server *http.Server, ln net.Listener, grace time.Duration) error {
	ln = new(UnidentifiedLimiter).Listen(ln)
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

// AccessReviewer decides who may read a daemon's own pages. client.AccessReviewer implements it with the API server.
type AccessReviewer interface {
	// TokenUser returns the user of a token. It returns false if the token is not valid.
	TokenUser(ctx context.Context, token string) (api.User, bool, error)
	// IsPathAllowed reports whether a user may get a path.
	IsPathAllowed(ctx context.Context, user api.User, path string) (bool, error)
}

// ServeHealth serves the health endpoints and /metrics over TLS until ctx ends. Without a certificate file it creates a
// self-signed certificate, as upstream's daemons do. With port 0 it serves nothing.
//
// /metrics and the pages about the daemon require authorization by judge, with a certificate of clientCAFile or a
// token. Without clientCAFile, /metrics is public. Members of system:masters are always authorized, even while the API
// server is unavailable. Only they may use /debug/pprof, which is served if profiling is set.
func (e Env) ServeHealth(
	ctx context.Context,
	address string,
	port int,
	certFile, keyFile, clientCAFile, clientCRLFile string,
	profiling bool,
	judge AccessReviewer,
) error {
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
	answer := e.Guarded(clientCAFile != "", profiling, judge)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The handshake may have been long ago.
		if err := revoked.verify(*r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		answer.ServeHTTP(w, r)
	})
	return Serve(ctx, ln, handler, tlsConfig, 2*time.Second, e.Log)
}

// Guarded serves what ServeHealth describes. The client is identified by the verified chains of the connection, or by a
// token.
func (e Env) Guarded(metrics, profiling bool, judge AccessReviewer) http.Handler {
	open, pages := e.Handler(), e.Pages(profiling)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := isDaemonPage(r.URL.Path)
		guarded := page || isMetricsPath(r.URL.Path) && metrics
		if !guarded {
			if len(r.TLS.VerifiedChains) > 0 {
				ConnOf(r.Context()).Identify()
			}
			open.ServeHTTP(w, r)
			return
		}
		user, err := authenticate(r, judge)
		if err != nil {
			e.Log.Debug("credentials refused", "path", r.URL.Path, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		ConnOf(r.Context()).Identify()
		if allowed, err := canRead(r, user, judge); err != nil {
			e.Log.Warn("ask whether a request is allowed", "user", user.Name, "path", r.URL.Path, "err", err)
			http.Error(w, "authorization could not be decided", http.StatusInternalServerError)
			return
		} else if !allowed {
			http.Error(w, fmt.Sprintf("forbidden: User %q cannot get path %q", user.Name, r.URL.Path),
				http.StatusForbidden)
			return
		}
		if page {
			pages.ServeHTTP(w, r)
		} else {
			open.ServeHTTP(w, r)
		}
	})
}

// isMetricsPath reports whether a path serves metrics.
func isMetricsPath(path string) bool {
	return path == "/metrics" || strings.HasPrefix(path, "/metrics/")
}

var errUnauthenticated = errors.New("the request has neither a client certificate nor a token")

// authenticate returns the user of a request.
func authenticate(r *http.Request, judge AccessReviewer) (api.User, error) {
	if len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		return api.User{
			Name:   subject.CommonName,
			Groups: append(slices.Clone(subject.Organization), api.GroupAuthenticated),
		}, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" || judge == nil {
		return api.User{}, errUnauthenticated
	}
	user, ok, err := judge.TokenUser(r.Context(), token)
	switch {
	case err != nil:
		return api.User{}, err
	case !ok:
		return api.User{}, errUnauthenticated
	}
	return user, nil
}

// canRead reports whether a user may read the requested path.
func canRead(r *http.Request, user api.User, judge AccessReviewer) (bool, error) {
	switch {
	case user.InGroup(api.GroupMasters):
		return true, nil
	case strings.HasPrefix(r.URL.Path, "/debug/"), judge == nil:
		return false, nil
	}
	return judge.IsPathAllowed(r.Context(), user, r.URL.Path)
}

func serverTLS(certFile, keyFile, clientCAFile string, revoked *Revoked) (*tls.Config, error) {
	cfg, err := ServerTLS(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	// Without a client authority, do not request client certificates: none could be verified.
	if clientCAFile != "" {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
		authorities, err := NewAuthorities(clientCAFile)
		if err != nil {
			return nil, err
		}
		cfg.VerifyConnection = revoked.verify
		// Accept a replaced authority without a restart.
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := cfg.Clone()
			now.ClientCAs = authorities.Pool()
			return now, nil
		}
	}
	return cfg, nil
}

// ServerTLS returns a TLS configuration with the certificate in a file, or with a new self-signed certificate if there
// is no file.
func ServerTLS(certFile, keyFile string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
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
		// Read it at each handshake, so that a renewed certificate is used without a restart.
		cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
	}
	return cfg, nil
}
