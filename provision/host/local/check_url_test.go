package local_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/host/local"
)

// The health check uses the client certificate for a server that refuses anonymous requests, and no certificate for a
// server that refuses the certificate.
// Proves S12.
func TestHealthIsCheckedWithAndWithoutACertificate(t *testing.T) {
	dir := t.TempDir()
	knownCert, knownKey := writePair(t, dir, "known")
	strange, strangeKey := writePair(t, dir, "strange")

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "anonymous"
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		switch {
		case r.URL.Path == "/ill":
			w.WriteHeader(http.StatusInternalServerError)
		case who == "strange" || who == "anonymous" && r.URL.Path == "/closed":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}

	withoutCert, withCert := host.Client{CA: ca}, host.Client{CA: ca, Cert: knownCert, Key: knownKey}
	other, missing := host.Client{
		CA:   ca,
		Cert: strange,
		Key:  strangeKey,
	}, host.Client{
		CA:   ca,
		Cert: filepath.Join(dir, "none.crt"),
		Key:  knownKey,
	}
	for _, c := range []struct {
		name, path string
		as         host.Client
		want       string
	}{
		{"no certificate, where none is needed", "/open", withoutCert, ""},
		{"no certificate, where one is needed", "/closed", withoutCert, "it answers 401 Unauthorized"},
		{"a certificate, where none is needed", "/open", withCert, ""},
		{"a certificate, where one is needed", "/closed", withCert, ""},
		{"an unknown certificate, where none is needed", "/open", other, ""},
		{"an unknown certificate, where one is needed", "/closed", other, "it answers 401 Unauthorized"},
		{"a missing certificate, where none is needed", "/open", missing, ""},
		{"an unhealthy server", "/ill", withCert, "it answers 500 Internal Server Error"},
		{"a missing CA", "/open", host.Client{CA: filepath.Join(dir, "none.crt")}, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := (&local.Host{}).CheckURL(t.Context(), server.URL+c.path, c.as)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	server.Close()
	for _, as := range []host.Client{withoutCert, withCert} {
		if err := (&local.Host{}).CheckURL(t.Context(), server.URL, as); !errors.Is(err, host.ErrNothingListens) {
			t.Errorf("a closed port: %v", err)
		}
	}
}

// writePair writes a self-signed certificate and its key, and returns their paths.
func writePair(t *testing.T, dir, name string) (cert, key string) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
