// Package etcd is the store over an etcd cluster. It keeps no state of its own but
// the leases that keys with a TTL share; how the cluster is run is daemons/etcd's
// business.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"clusterctl/daemons/store"
)

// Config says where the cluster is and who asks.
type Config struct {
	Endpoints                 []string // URLs of the members
	CAFile, CertFile, KeyFile string   // all empty: no TLS
	DialTimeout               time.Duration
}

// Store is a store.Store over etcd.
type Store struct {
	client *clientv3.Client
	leases leases
}

var _ store.Store = (*Store)(nil)

// reconnect begins far below grpc's one second: members and API servers start together,
// and a member that restarts is away for moments.
var reconnect = backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// Open returns a store over the cluster. It connects in the background: a cluster
// that is not there shows in the first call.
func Open(c Config) (*Store, error) {
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: tlsConfig, DialTimeout: c.DialTimeout,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second, PermitWithoutStream: true,
		MaxCallSendMsgSize: 16 << 20, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: c.DialTimeout})},
	})
	if err != nil {
		return nil, fmt.Errorf("open the store at %v: %w", c.Endpoints, err)
	}
	s := &Store{client: client}
	s.leases.client = client
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// Client is for what is not the store's business, as snapshots and alarms.
func (s *Store) Client() *clientv3.Client { return s.client }

func (c Config) tls() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the store's CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the store's CA: no certificate in %s", c.CAFile)
		}
	}
	if c.CertFile != "" {
		certFile, keyFile := c.CertFile, c.KeyFile
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("read the client certificate towards the store: %w", err)
		}
		// Read again at every handshake, so that a rotated certificate needs no restart.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
	}
	return cfg, nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.KV, error) {
	r, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	if len(r.Kvs) == 0 {
		return nil, nil
	}
	return &store.KV{Key: key, Value: r.Kvs[0].Value, Revision: r.Kvs[0].ModRevision}, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, prefix, after string, revision int64, limit int) ([]store.KV, int64, bool, error) {
	from := prefix
	if after > prefix {
		from = after + "\x00"
	}
	r, err := s.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
		clientv3.WithRev(revision), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, 0, false, fmt.Errorf("range %s: %w", prefix, known(err))
	}
	kvs := make([]store.KV, len(r.Kvs))
	for i, kv := range r.Kvs {
		kvs[i] = store.KV{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
	}
	if revision == 0 {
		revision = r.Header.Revision
	}
	return kvs, revision, r.More, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	var guards []clientv3.Cmp
	var does, looks []clientv3.Op
	for _, g := range t.Guards {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(g.Key), "=", g.Revision))
		looks = append(looks, clientv3.OpGet(g.Key))
	}
	for _, p := range t.Puts {
		lease, err := s.leases.get(ctx, p.TTL)
		if err != nil {
			return store.Result{}, fmt.Errorf("put %s: %w", p.Key, err)
		}
		does = append(does, clientv3.OpPut(p.Key, string(p.Value), clientv3.WithLease(lease)))
	}
	for _, key := range t.Deletes {
		does = append(does, clientv3.OpDelete(key))
	}
	r, err := s.client.Txn(ctx).If(guards...).Then(does...).Else(looks...).Commit()
	if err != nil {
		return store.Result{}, fmt.Errorf("commit: %w", known(err))
	}
	result := store.Result{Done: r.Succeeded, Revision: r.Header.Revision}
	if r.Succeeded {
		return result, nil
	}
	for i := range looks {
		var kv *store.KV
		if found := r.Responses[i].GetResponseRange().Kvs; len(found) > 0 {
			kv = &store.KV{Key: string(found[0].Key), Value: found[0].Value, Revision: found[0].ModRevision}
		}
		result.Current = append(result.Current, kv)
	}
	return result, nil
}

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	// Any linearizable read tells it; one of a key that is never there carries the least.
	r, err := s.client.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("learn the store's revision: %w", err)
	}
	return r.Header.Revision, nil
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if _, err := s.client.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact: %w", known(err))
	}
	return nil
}

func known(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFuture
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return store.ErrTooLarge
	}
	return err
}
