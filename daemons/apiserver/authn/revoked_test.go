package authn

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/certs"
)

// Watches end when the certificate that authenticated the user is revoked. They do not end if the user was
// authenticated by a token on a connection with such a certificate.
// Proves S12.
func TestStreamsEndWhenTheCertificateIsRevoked(t *testing.T) {
	w := newTestServer(t)
	w.cfg.ClientCRLFile = filepath.Join(filepath.Dir(w.cfg.ClientCAFile), "ca.crl")
	lost, kept := w.leaf(w.ca, certs.Node("n1")), w.leaf(w.ca, certs.Node("n2"))
	w.revoke()
	w.build()
	token, err := w.issue(nil)
	if err != nil {
		t.Fatal(err)
	}
	byLost, byKept := newRequest(lost), newRequest(kept)
	withToken := newRequest(w.leaf(w.newCA("stranger"), certs.Admin()), "Authorization", "Bearer "+token)
	withToken.TLS.PeerCertificates[0].SerialNumber = lost.SerialNumber
	user, _, err := w.authn.Authenticate(byLost)
	if err != nil {
		t.Fatal(err)
	}
	ends, stopEnds := w.authn.UntilRevoked(t.Context(), byLost, user)
	defer stopEnds()
	if user, _, err = w.authn.Authenticate(byKept); err != nil {
		t.Fatal(err)
	}
	lasts, stopLasts := w.authn.UntilRevoked(t.Context(), byKept, user)
	defer stopLasts()
	w.revoke(lost)
	select {
	case <-ends.Done():
	case <-time.After(30 * time.Second):
		t.Error("it accepts a revoked certificate")
	}
	if lasts.Err() != nil {
		t.Error("what another certificate was shown for ends")
	}
	if user, _, err = w.authn.Authenticate(withToken); err != nil {
		t.Fatal(err)
	}
	again, stop := w.authn.UntilRevoked(t.Context(), withToken, user)
	defer stop()
	if again.Err() != nil {
		t.Error("a token ends with a certificate that authenticated no user")
	}
}

// Watches through a front proxy end when the proxy's certificate is revoked, whatever user and credential its headers
// name.
// Proves S12.
func TestProxiedStreamsEndWhenTheProxyIsRevoked(t *testing.T) {
	w := newTestServer(t)
	w.cfg.ClientCRLFile = filepath.Join(filepath.Dir(w.cfg.ClientCAFile), "ca.crl")
	w.ca = w.newCA("front-proxy-ca") // the authority of the revocation list
	w.cfg.RequestheaderClientCAFile = w.file(t.TempDir(), "front.crt", w.ca.Cert)
	proxy := w.leaf(w.ca, certs.FrontProxyClient())
	w.revoke()
	w.build()
	var all []context.Context
	for _, headers := range [][]string{nil, {"X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=x"}} {
		r := newRequest(proxy, append([]string{"X-Remote-User", "jane"}, headers...)...)
		user, ok, err := w.authn.Authenticate(r)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		ctx, stop := w.authn.UntilRevoked(t.Context(), r, user)
		defer stop()
		if ctx.Err() != nil {
			t.Fatal("it ends at once")
		}
		all = append(all, ctx)
	}
	w.revoke(proxy)
	for _, ctx := range all {
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Error("it accepts a revoked certificate of a front proxy")
		}
	}
}

// revoke writes the revocation list. More entries get a later timestamp, because a change is detected by the timestamp.
func (w *testServer) revoke(list ...*x509.Certificate) {
	w.t.Helper()
	var entries []certs.Revoked
	for _, c := range list {
		entries = append(entries, certs.Revoked{Serial: c.SerialNumber.Text(16), At: w.now})
	}
	der, err := certs.RevocationList(w.ca, entries, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	next := w.file(filepath.Dir(w.cfg.ClientCRLFile), "next", certs.EncodeRevocations(der))
	at := w.now.Add(time.Duration(len(list)) * time.Minute)
	if err := os.Chtimes(next, at, at); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.cfg.ClientCRLFile); err != nil {
		w.t.Fatal(err)
	}
}
