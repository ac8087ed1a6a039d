// Package etcd is the store over an etcd cluster. It keeps no state except the leases that keys with a TTL share.
// Provisioning runs the cluster.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
)

// Config has the addresses of the cluster and the credentials.
type Config struct {
	Endpoints                 []string // URLs or addresses of the members
	CAFile, CertFile, KeyFile string   // all empty means no TLS
	DialTimeout               time.Duration
}

// Store is a store.Store over etcd.
type Store struct {
	members memberSet
	leases  leasePool
	history readHistory
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Sized = (*Store)(nil)
)

// reconnectBackoff starts far below gRPC's one second. Members and API servers start together, and a member restarts
// within moments.
var reconnectBackoff = backoff.Config{
	BaseDelay:  10 * time.Millisecond,
	Multiplier: 1.6,
	Jitter:     0.2,
	MaxDelay:   2 * time.Second,
}

// Open returns a store over the cluster. It connects in the background, so an unreachable cluster is reported by the
// first call.
func Open(c Config) (*Store, error) {
	tlsConfig, roots, err := c.tls()
	if err != nil {
		return nil, err
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	if len(c.Endpoints) == 0 {
		return nil, errors.New("open the store: no member of it is named")
	}
	endpoints, err := c.urls()
	if err != nil {
		return nil, err
	}
	s := &Store{leases: leasePool{mutex: make(chan struct{}, 1), byTTL: map[time.Duration]*sharedLease{}}}
	s.members.roots = roots
	dialing := []grpc.DialOption{grpc.WithNoProxy(), grpc.WithInitialWindowSize(1 << 20),
		grpc.WithInitialConnWindowSize(4 << 20), grpc.WithChainUnaryInterceptor(makeAttempt),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnectBackoff, MinConnectTimeout: c.DialTimeout})}
	if roots != nil {
		dialing = append(dialing,
			grpc.WithTransportCredentials(&rotatingCredentials{credentials.NewTLS(tlsConfig), tlsConfig, roots}))
	}
	err = s.members.open(clientv3.Config{
		TLS: tlsConfig, DialTimeout: c.DialTimeout,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second, PermitWithoutStream: true,
		MaxCallSendMsgSize: maxRequest, Logger: zap.NewNop(),
		DialOptions: dialing,
	}, endpoints)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.members.close() }

// urls returns the members' URLs, and adds a scheme to addresses without one.
func (c Config) urls() ([]string, error) {
	scheme := "http://"
	if c.CAFile != "" || c.CertFile != "" {
		scheme = "https://"
	}
	var list []string
	for _, endpoint := range c.Endpoints {
		if !strings.Contains(endpoint, "://") {
			endpoint = scheme + endpoint
		}
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("open the store: the member %q is not a URL of http or https", endpoint)
		}
		list = append(list, endpoint)
	}
	return list, nil
}

// tls returns the TLS configuration for connections to members, and a function that returns the current authorities. A
// nil function means the system's authorities.
func (c Config) tls() (_ *tls.Config, roots func() *x509.CertPool, _ error) {
	if c.CAFile == "" && c.CertFile == "" {
		return nil, nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CAFile != "" {
		authorities, err := run.NewAuthorities(c.CAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the store's CA: %w", err)
		}
		roots = authorities.Pool
		cfg.RootCAs = roots()
	}
	if c.CertFile != "" {
		certFile, keyFile := c.CertFile, c.KeyFile
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return nil, nil, fmt.Errorf("read the client certificate towards the store: %w", err)
		}
		// Read again at every handshake, so that a rotated certificate needs no restart.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
	}
	return cfg, roots, nil
}

// rotatingCredentials verifies a member with the authorities that are current when it connects.
type rotatingCredentials struct {
	credentials.TransportCredentials
	config *tls.Config
	roots  func() *x509.CertPool
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *rotatingCredentials) ClientHandshake(
	ctx context.Context,
	authority string,
	conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	now := r.config.Clone()
	now.RootCAs = r.roots()
	return credentials.NewTLS(now).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r *rotatingCredentials) Clone() credentials.TransportCredentials {
	return &rotatingCredentials{r.TransportCredentials.Clone(), r.config, r.roots}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	at, err := s.members.active()
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	r, err := at.read(ctx, key, false)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, storeError(at.replaceError(err)))
	}
	return r.kv, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	at, err := s.members.active()
	if err != nil {
		return store.Result{}, fmt.Errorf("commit: %w", err)
	}
	request := &txn{Txn: t, leases: make([]int64, len(t.Puts))}
	for i, p := range t.Puts {
		lease, err := s.leases.get(ctx, at.etcdClient, p.TTL)
		if err != nil {
			return store.Result{}, fmt.Errorf("put %s: %w", p.Key, storeError(at.replaceError(err)))
		}
		request.leases[i] = int64(lease)
	}
	r, err := at.commit(ctx, request)
	if err != nil {
		return store.Result{}, fmt.Errorf("commit what may have been done: %w", storeError(at.replaceError(err)))
	}
	at.recordAnswer(nil)
	result := store.Result{Done: r.done, Revision: r.revision}
	if r.done {
		return result, nil
	}
	if len(r.ranges) != len(t.Guards) {
		return store.Result{}, fmt.Errorf("commit what was not done: the store says of %d keys what %d have",
			len(t.Guards), len(r.ranges))
	}
	for _, found := range r.ranges {
		result.Current = append(result.Current, found.kv)
	}
	return result, nil
}

// maxRequest is the maximum size of a request to the store, in bytes.
const maxRequest = 16 << 20

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	// Every linearizable read returns it.
	at, err := s.members.active()
	if err != nil {
		return 0, fmt.Errorf("learn the store's revision: %w", err)
	}
	revision, err := at.readRevision(ctx)
	if err != nil {
		return 0, fmt.Errorf("learn the store's revision: %w", storeError(err))
	}
	return revision, nil
}

// CheckHealth implements store.Store.
func (s *Store) CheckHealth(ctx context.Context) error {
	at, err := s.members.active()
	if err != nil {
		return fmt.Errorf("ask the store whether it is there: %w", err)
	}
	if err := at.checkMajority(ctx); err != nil {
		return fmt.Errorf("ask the store whether it is there: %w", storeError(err))
	}
	return nil
}

// Size implements store.Sized. It is the size of the database of the member in use.
func (s *Store) Size(ctx context.Context) (int64, error) {
	at, err := s.members.active()
	if err != nil {
		return 0, fmt.Errorf("ask the store for its size: %w", err)
	}
	r, err := at.etcdClient.Status(ctx, s.members.endpoints[at.member])
	if err != nil {
		return 0, fmt.Errorf("ask the store for its size: %w", storeError(at.replaceError(err)))
	}
	return r.DbSize, nil
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	at := s.members.current.Load()
	if _, err := at.etcdClient.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact: %w", storeError(at.replaceError(err)))
	}
	return nil
}

// isTooLarge reports whether a message exceeded a gRPC limit, so that etcd has not processed it.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

func storeError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFuture
	case errors.Is(err, rpctypes.ErrRequestTooLarge), isTooLarge(err):
		return store.ErrTooLarge
	}
	for _, without := range []error{rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout,
		rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrStopped} {
		if errors.Is(err, without) {
			return fmt.Errorf("%w: etcd has no leader, or its leader no majority of the members: %w",
				store.ErrUnavailable, err)
		}
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded ||
		errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
