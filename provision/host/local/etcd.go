package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"clusterctl/provision/host"
)

type etcd struct{ client *clientv3.Client }

// Etcd returns a client of the store.
func (h *Host) Etcd(ctx context.Context, endpoints []string, ca, cert, key string) (host.Etcd, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate towards etcd: %w", err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read etcd's CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	client, err := clientv3.New(clientv3.Config{
		Context: context.WithoutCancel(ctx), Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithNoProxy()},
		TLS:         &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", endpoints, err)
	}
	return etcd{client}, nil
}

func (e etcd) Members(ctx context.Context) ([]host.Member, error) {
	answer, err := e.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list etcd's members: %w", err)
	}
	var list []host.Member
	for _, m := range answer.Members {
		member := host.Member{ID: m.ID, Name: m.Name, Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		list = append(list, member)
	}
	return list, nil
}

func (e etcd) AddLearner(ctx context.Context, peerURL string) error {
	_, err := e.client.MemberAddAsLearner(ctx, []string{peerURL})
	return wrapUnsettled(err)
}

func (e etcd) Promote(ctx context.Context, id uint64) error {
	_, err := e.client.MemberPromote(ctx, id)
	return err
}

func (e etcd) Remove(ctx context.Context, id uint64) error {
	_, err := e.client.MemberRemove(ctx, id)
	return wrapUnsettled(err)
}

func wrapUnsettled(err error) error {
	if errors.Is(err, rpctypes.ErrUnhealthy) {
		return fmt.Errorf("%w: %w", host.ErrUnsettled, err)
	}
	return err
}

func (e etcd) Close() error { return e.client.Close() }
