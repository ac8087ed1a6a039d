package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/certs"
)

// A member's certificate is verified with the authorities at the time of the connection.
// Proves S12.
func TestMembersAreVerifiedWithCurrentAuthorities(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	var cas [2]certs.Pair
	for i := range cas {
		var err error
		if cas[i], err = certs.NewCA("etcd-ca", 0, now); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := certs.Issue(cas[1], certs.APIServer("cluster.local", "10.96.0.1", []string{"127.0.0.1"}), now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).Handshake(); <-t.Context().Done(); _ = conn.Close() }()
		}
	}()
	file := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(file, cas[0].Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	config, roots, err := Config{CAFile: file}.tls()
	if err != nil {
		t.Fatal(err)
	}
	trusted := roots()
	own := &rotatingCredentials{nil, config, func() *x509.CertPool { return trusted }}
	greet := func() error {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _, err = own.ClientHandshake(context.Background(), ln.Addr().String(), conn)
		return err
	}
	if greet() == nil {
		t.Error("a member of another authority is believed")
	}
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(cas[1].Cert)
	if err := greet(); err != nil {
		t.Error("a member of the new authority is not believed:", err)
	}
}
