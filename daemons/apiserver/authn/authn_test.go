package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/config"
)

// testServer has an API server's files, a clock and a few objects.
type testServer struct {
	t       *testing.T
	cfg     config.APIServer
	now     time.Time
	ca      certs.Pair
	objects *apifake.Objects
	authn   *Authn
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	dir := t.TempDir()
	w := &testServer{t: t, now: time.Now(), cfg: config.DefaultAPIServer()}
	w.ca = w.newCA("kubernetes")
	private, public, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.ClientCAFile = w.file(dir, "ca.crt", w.ca.Cert)
	w.cfg.ServiceAccountKeyFiles = []string{w.file(dir, "sa.pub", public)}
	w.cfg.ServiceAccountSigningKeyFile = w.file(dir, "sa.key", private)
	w.objects = apifake.New(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "sa-1"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "sa-2"}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "pod-1"},
			Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: "n1"},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}},
	)
	w.build()
	return w
}

func (w *testServer) build() {
	w.t.Helper()
	var err error
	if w.authn, err = New(w.cfg, w.objects, func() time.Time { return w.now },
		slog.New(slog.DiscardHandler)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testServer) newCA(name string) certs.Pair {
	w.t.Helper()
	ca, err := certs.NewCA(name, 0, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return ca
}

func (w *testServer) file(dir, name string, text []byte) string {
	w.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *testServer) leaf(ca certs.Pair, r certs.Request) *x509.Certificate {
	w.t.Helper()
	pair, err := certs.Issue(ca, r, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := certs.ParseCert(pair.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	return leaf
}

func newRequest(leaf *x509.Certificate, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "https://kubernetes/api", nil)
	r.TLS = nil
	if leaf != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// Proves S12.
func TestCertificatesHoldUserAndGroups(t *testing.T) {
	w := newTestServer(t)
	u, ok, err := w.authn.Authenticate(newRequest(w.leaf(w.ca, certs.Node("n1"))))
	if err != nil || !ok || u.Name != "system:node:n1" ||
		!slices.Equal(u.Groups, []string{"system:nodes", "system:authenticated"}) {
		t.Errorf("%+v %v %v", u, ok, err)
	}
	if _, ok, err := w.authn.Authenticate(newRequest(nil)); ok || err != nil {
		t.Errorf("without credentials: %v %v", ok, err)
	}
	if _, ok, err := w.authn.Authenticate(newRequest(w.leaf(w.newCA("stranger"), certs.Admin()))); ok || err == nil ||
		!strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("a stranger's certificate: %v %v", ok, err)
	}
	if _, ok, err := w.authn.Authenticate(newRequest(w.leaf(w.ca, certs.DaemonServer("x", nil)))); ok || err == nil {
		t.Errorf("a server's certificate as a client's: %v %v", ok, err)
	}
	leaf := w.leaf(w.ca, certs.Admin())
	if _, ok, _ := w.authn.Authenticate(newRequest(leaf)); !ok {
		t.Fatal("the administrator is not known")
	}
	w.now = w.now.Add(certs.LeafLifetime + time.Hour)
	if _, ok, err := w.authn.Authenticate(newRequest(leaf)); ok || err == nil {
		t.Errorf("an expired certificate that was good before: %v %v", ok, err)
	}
}

func TestClientCAIsReloaded(t *testing.T) {
	w := newTestServer(t)
	old := w.leaf(w.ca, certs.Admin())
	if _, ok, _ := w.authn.Authenticate(newRequest(old)); !ok {
		t.Fatal("not known before")
	}
	next := w.newCA("next")
	w.file(filepath.Dir(w.cfg.ClientCAFile), "ca.crt", next.Cert)
	later := time.Now().Add(time.Minute) // later even if the file system's timestamps are coarse
	if err := os.Chtimes(w.cfg.ClientCAFile, later, later); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(authorityCheckInterval + time.Second)
	if _, ok, err := w.authn.Authenticate(newRequest(w.leaf(next, certs.Admin()))); !ok {
		t.Errorf("the new CA's client is not known: %v", err)
	}
	if _, ok, _ := w.authn.Authenticate(newRequest(old)); ok {
		t.Error("the old CA's client still is")
	}
}

func TestFrontProxyHeadersNameTheUser(t *testing.T) {
	w := newTestServer(t)
	front := w.newCA("front-proxy-ca")
	w.cfg.RequestheaderClientCAFile = w.file(t.TempDir(), "front.crt", front.Cert)
	w.cfg.RequestheaderAllowedNames = []string{"front-proxy-client"}
	w.build()
	headers := []string{
		"X-Remote-User",
		"ann",
		"X-Remote-Group",
		"a",
		"X-Remote-Group",
		"b",
		"X-Remote-Extra-Scopes",
		"s",
	}
	r := newRequest(w.leaf(front, certs.FrontProxyClient()), headers...)
	u, ok, err := w.authn.Authenticate(r)
	if err != nil || !ok || u.Name != "ann" || !slices.Equal(u.Groups, []string{"a", "b", api.GroupAuthenticated}) ||
		u.Extra["scopes"][0] != "s" {
		t.Errorf("%+v %v %v", u, ok, err)
	}
	if r.Header.Get("X-Remote-User") != "" {
		t.Error("the header goes on")
	}
	// For any other client with such headers, the certificate counts.
	u, ok, err = w.authn.Authenticate(newRequest(w.leaf(w.ca, certs.Node("n1")), headers...))
	if err != nil || !ok || u.Name != "system:node:n1" {
		t.Errorf("%+v %v %v", u, ok, err)
	}
	if _, ok, _ := w.authn.Authenticate(newRequest(w.leaf(front, certs.Daemon("else")), headers...)); ok {
		t.Error("a name that is not allowed is believed")
	}
}

func (w *testServer) issue(change func(*authenticationv1.TokenRequest)) (string, error) {
	req := &authenticationv1.TokenRequest{}
	if change != nil {
		change(req)
	}
	obj, err := w.authn.Tokens().Issue(context.Background(), api.User{}, "shop", "web", req)
	if err != nil {
		return "", err
	}
	return obj.(*authenticationv1.TokenRequest).Status.Token, nil
}

func bindTo(kind, name, uid string) func(*authenticationv1.TokenRequest) {
	return func(r *authenticationv1.TokenRequest) {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       kind,
			Name:       name,
			UID:        types.UID(uid),
		}
	}
}

func (w *testServer) verifyToken(token string) (api.User, bool, error) {
	return w.authn.Authenticate(newRequest(nil, "Authorization", "Bearer "+token))
}

// Proves S09.
func TestTokensDependOnTheirBoundObjects(t *testing.T) {
	w := newTestServer(t)
	token, err := w.issue(bindTo("Pod", "p", "pod-1"))
	if err != nil {
		t.Fatal(err)
	}
	u, ok, err := w.verifyToken(token)
	if err != nil || !ok {
		t.Fatal(err)
	}
	if u.Name != "system:serviceaccount:shop:web" || u.UID != "sa-1" ||
		!slices.Equal(u.Groups,
			[]string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) {
		t.Errorf("%+v", u)
	}
	for key, want := range map[string]string{extraPodName: "p", extraPodUID: "pod-1", extraNodeName: "n1",
		extraNodeUID: "node-1"} {
		if got := u.Extra[key]; len(got) != 1 || got[0] != want {
			t.Errorf("extra %s is %v", key, got)
		}
	}
	refused := func(reason string) {
		t.Helper()
		if _, ok, err := w.verifyToken(token); ok || err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %v %v, want %q", ok, err, reason)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "pod-1"}}
	w.objects.Remove(pod)
	refused("pod p has been deleted")
	again := pod.DeepCopy()
	again.UID = "pod-2"
	w.objects.Put(again)
	refused("does not match claim")
	going := pod.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.objects.Put(going)
	if _, ok, err := w.verifyToken(token); !ok {
		t.Errorf("a pod that is being stopped lost its token at once: %v", err)
	}
	w.objects.Put(pod)
	w.objects.Remove(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	refused("service account web has been deleted")
}

func TestInvalidTokensAreRejected(t *testing.T) {
	w := newTestServer(t)
	good, err := w.issue(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := w.verifyToken(good); !ok {
		t.Fatal(err)
	}
	elsewhere, err := w.issue(func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"vault"} })
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := newTestServer(t).issue(nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	unsigned := "eyJhbGciOiJub25lIn0." + parts[1] + "."
	for name, token := range map[string]string{
		"another audience": elsewhere, "another's key": stranger, "nonsense": "x", "no signature": unsigned,
		"changed": parts[0] + "." + parts[1] + "x." + parts[2],
	} {
		if _, ok, err := w.verifyToken(token); ok || err == nil ||
			!strings.Contains(err.Error(), "invalid bearer token") {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	if u, audiences, err := w.authn.Tokens().Verify(elsewhere, []string{"vault", "x"}); err != nil ||
		!slices.Equal(audiences, []string{"vault"}) ||
		u.UID != "sa-1" {
		t.Errorf("for whom it is meant: %v %v %v", u, audiences, err)
	}
	w.now = w.now.Add(2 * time.Hour)
	if _, ok, err := w.verifyToken(good); ok || err == nil {
		t.Error("an expired token is good")
	}
}

func TestInvalidTokenRequestsAreRejected(t *testing.T) {
	w := newTestServer(t)
	seconds := func(n int64) func(*authenticationv1.TokenRequest) {
		return func(r *authenticationv1.TokenRequest) { r.Spec.ExpirationSeconds = &n }
	}
	w.objects.Put(
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q", UID: "q"},
			Spec:       corev1.PodSpec{ServiceAccountName: "other"},
		},
	)
	for name, c := range map[string]struct {
		change func(*authenticationv1.TokenRequest)
		error  string
	}{
		"too short": {seconds(60), "spec.expirationSeconds: Invalid value: 60: may not specify a duration less " +
			"than 10 minutes"},
		"too long":      {seconds(1 << 40), "may not specify a duration larger than 2^32 seconds"},
		"no such pod":   {bindTo("Pod", "x", ""), `pods "x" not found`},
		"another's pod": {bindTo("Pod", "q", ""), `cannot bind token for serviceaccount "web" to pod running with different serviceaccount name.`},
		"other uid": {bindTo("Pod", "p", "pod-9"), "the UID in the bound object reference (pod-9) does not " +
			"match the UID in record"},
		"to a service":    {bindTo("Service", "p", ""), "cannot bind token to object of type /v1, Kind=Service"},
		"to a node":       {bindTo("Node", "n1", "node-1"), ""},
		"ten minutes":     {seconds(600), ""},
		"nothing special": {nil, ""},
	} {
		_, err := w.issue(c.change)
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
		}
	}
}

func TestTokensVerifyWithPublishedKeys(t *testing.T) {
	w := newTestServer(t)
	get := func(path string) map[string]any {
		rec := httptest.NewRecorder()
		w.authn.Tokens().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		var out map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if d := get("/.well-known/openid-configuration"); d["issuer"] != w.cfg.ServiceAccountIssuer ||
		d["jwks_uri"] != w.cfg.ServiceAccountIssuer+"/openid/v1/jwks" {
		t.Errorf("%v", d)
	}
	keys, _ := get("/openid/v1/jwks")["keys"].([]any)
	if len(keys) != 1 {
		t.Fatalf("%v", keys)
	}
	if key := keys[0].(map[string]any); key["alg"] != "ES256" || key["d"] != nil {
		t.Errorf("%v", key)
	}
}

// A front proxy with a revoked certificate is not trusted, whether the list is of its own authority or of the clients'.
// Proves S12.
func TestRevokedFrontProxiesAreRejected(t *testing.T) {
	w := newTestServer(t)
	dir := filepath.Dir(w.cfg.ClientCAFile)
	front := w.newCA("front-proxy-ca")
	w.cfg.RequestheaderClientCAFile = w.file(dir, "front.crt", front.Cert)
	w.cfg.ClientCRLFile = filepath.Join(dir, "ca.crl")
	lost, kept := w.leaf(front, certs.FrontProxyClient()), w.leaf(front, certs.FrontProxyClient())
	var text []byte
	for _, l := range []struct {
		ca   certs.Pair
		list []certs.Revoked
	}{{w.ca, nil}, {front, []certs.Revoked{{Serial: lost.SerialNumber.Text(16), At: w.now}}}} {
		der, err := certs.RevocationList(l.ca, l.list, w.now)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, certs.EncodeRevocations(der)...)
	}
	w.file(dir, "ca.crl", text)
	w.build()
	if _, ok, _ := w.authn.Authenticate(newRequest(lost, "X-Remote-User", "ann")); ok {
		t.Error("a revoked proxy is believed")
	}
	if u, ok, err := w.authn.Authenticate(newRequest(kept, "X-Remote-User", "ann")); !ok || u.Name != "ann" {
		t.Error(u, ok, err)
	}
}
