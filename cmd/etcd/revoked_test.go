package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// If the certificate of a connected client is revoked, it can no longer read and write on the connection, and its watch
// ends. Another client's watch continues.
// Proves S12.
func TestConnectionsEndWhenTheirCertificateIsRevoked(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := newTestMember(ctx, t)
	lost, lostSerial := m.client(t)
	kept, _ := m.client(t)
	if _, err := lost.Put(ctx, "/a", "1"); err != nil {
		t.Fatal(err)
	}
	goes, ends := m.watch(ctx, t, kept), m.watch(ctx, t, lost)

	m.revoke(t, lostSerial)
	for {
		r, open := <-ends
		if !open || r.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the watch goes on")
	}
	once, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	if r, err := lost.Get(once, "/a"); err == nil {
		t.Errorf("it reads: %v", r.Kvs)
	}
	if _, err := lost.Put(once, "/a", "2"); err == nil {
		t.Error("it writes")
	}
	if _, err := kept.Put(ctx, "/a", "3"); err != nil {
		t.Fatal(err)
	}
	for {
		r, open := <-goes
		if !open || r.Err() != nil {
			t.Fatalf("another's watch ends: %v", r.Err())
		}
		for _, e := range r.Events {
			if string(e.Kv.Value) == "3" {
				return
			}
		}
	}
}

// testMember is an etcd cluster of one member with TLS.
type testMember struct {
	server *embed.Etcd
	ca     certs.Pair
	crl    string
}

func newTestMember(ctx context.Context, t *testing.T) *testMember {
	t.Helper()
	dir := t.TempDir()
	now := time.Now()
	ca, err := certs.NewCA("etcd-ca", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	own, err := certs.Issue(ca, certs.EtcdServer("one", []string{"127.0.0.1"}), now)
	if err != nil {
		t.Fatal(err)
	}
	m := &testMember{ca: ca, crl: filepath.Join(dir, "ca.crl")}
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string][]byte{"ca.crt": ca.Cert, "server.crt": own.Cert, "server.key": own.Key} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.revoke(t)
	const peer, client = "http://127.0.0.1:0", "https://127.0.0.1:0"
	if m.server, err = startServer(config.Etcd{
		Name: "one", DataDir: at("data"), ListenClientURLs: []string{client}, AdvertiseClientURLs: []string{client},
		ListenPeerURLs: []string{peer}, InitialAdvertisePeerURLs: []string{peer}, UnsafeNoFsync: true,
		CertFile: at("server.crt"), KeyFile: at("server.key"), TrustedCAFile: at("ca.crt"), ClientCertAuth: true,
		ClientCRLFile: m.crl,
	}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.server.Close)
	select {
	case <-m.server.Server.ReadyNotify():
	case <-ctx.Done():
		t.Fatal("etcd does not get ready")
	}
	return m
}

// client returns a client with its own certificate and connection.
func (m *testMember) client(t *testing.T) (*clientv3.Client, *x509.Certificate) {
	t.Helper()
	own, err := certs.Issue(m.ca, certs.APIServerEtcdClient(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(m.ca.Cert)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{
			"https://" + m.server.Clients[0].Addr().String(),
		}, DialTimeout: 20 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	cert, err := certs.ParseCert(own.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return c, cert
}

// watch returns a watch that the server has created.
func (m *testMember) watch(ctx context.Context, t *testing.T, c *clientv3.Client) clientv3.WatchChan {
	t.Helper()
	w := c.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r, open := <-w; !open || r.Err() != nil {
		t.Fatalf("watch: %v", r.Err())
	}
	return w
}

// revoke writes the revocation list with a time one second later each time, because the server recognizes a new list by
// its time.
func (m *testMember) revoke(t *testing.T, list ...*x509.Certificate) {
	t.Helper()
	now := time.Now()
	var entries []certs.Revoked
	for _, c := range list {
		entries = append(entries, certs.Revoked{Serial: c.SerialNumber.Text(16), At: now})
	}
	der, err := certs.RevocationList(m.ca, entries, now)
	if err == nil {
		err = os.WriteFile(m.crl+".new", der, 0o600)
	}
	if err == nil {
		at := now.Add(time.Duration(len(list)) * time.Second)
		err = os.Chtimes(m.crl+".new", at, at)
	}
	if err == nil {
		err = os.Rename(m.crl+".new", m.crl)
	}
	if err != nil {
		t.Fatal(err)
	}
}
