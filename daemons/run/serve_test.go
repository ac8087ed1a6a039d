package run

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"clusterctl/certs"
)

// TestClientCertificatesAreAcceptedWithoutAnAuthority connects with a client certificate to a daemon without a client
// authority.
func TestClientCertificatesAreAcceptedWithoutAnAuthority(t *testing.T) {
	ca, err := certs.NewCA("other", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.Issue(ca, certs.Request{CommonName: "jane",
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := serverTLS("", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{TLSConfig: cfg, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.PeerCertificates)+len(r.TLS.VerifiedChains) > 0 {
				t.Error("the daemon received a client certificate that it cannot verify")
			}
			_, _ = io.WriteString(w, "ok")
		})}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(ln, "", "") }()
	defer func() { _ = server.Close(); <-done }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("https://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "ok" {
		t.Errorf("answer %q, %v", text, err)
	}
}
