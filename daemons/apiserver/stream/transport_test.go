package stream

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A kubelet's certificate is verified with the authorities at the time of the connection, and for its node's name.
// Proves S12.
func TestKubeletsAreVerifiedWithCurrentAuthorities(t *testing.T) {
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer kubelet.Close()
	none, right := x509.NewCertPool(), x509.NewCertPool()
	right.AddCert(kubelet.Certificate())
	trusted := none
	var all kubeletTransports
	ask := func(node string) error {
		answer, err := (&http.Client{Transport: all.transportOf(&tls.Config{RootCAs: none},
			func() *x509.CertPool { return trusted }, node)}).Get(
			kubelet.URL,
		)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	if ask("example.com") == nil {
		t.Error("a kubelet of no authority is believed")
	}
	trusted = right
	if err := ask("example.com"); err != nil {
		t.Error("a kubelet of the new authority is not believed:", err)
	}
	if ask("another.node") == nil {
		t.Error("a kubelet is believed to be another node's")
	}
}
