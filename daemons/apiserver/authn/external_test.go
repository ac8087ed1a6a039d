package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// testIssuer is a token issuer over TLS.
type testIssuer struct {
	t           *testing.T
	server      *httptest.Server
	key         *ecdsa.PrivateKey
	id          string
	keyRequests atomic.Int32 // number of requests for its keys
}

func newTestIssuer(t *testing.T) *testIssuer {
	p := &testIssuer{t: t}
	p.rotate("one")
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.server.URL, "jwks_uri": p.server.URL + "/keys"})
		case "/keys":
			p.keyRequests.Add(1)
			_ = json.NewEncoder(w).
				Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: p.id, Algorithm: "ES256",
					Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *testIssuer) rotate(id string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.key, p.id = key, id
}

func (p *testIssuer) token(claims map[string]any) string {
	p.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: p.id}},
		nil)
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func (p *testIssuer) ca() string {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return "      " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n      ")
}

func (w *testServer) configure(text string) {
	w.t.Helper()
	w.cfg.AuthenticationConfig = w.file(w.t.TempDir(), "authentication.yaml", []byte(text))
	w.build()
}

func bearerRequest(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func TestClaimsMapToUsers(t *testing.T) {
	p, w := newTestIssuer(t), newTestServer(t)
	w.configure(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: ` + p.server.URL + `
    audiences: [cluster, other]
    audienceMatchPolicy: MatchAny
    certificateAuthority: |
` + p.ca() + `
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: "claims.exp - claims.iat <= 86400", message: at most a day}
  claimMappings:
    username: {expression: "'corp:' + claims.sub"}
    groups: {expression: "claims.roles.split(',')"}
    uid: {claim: sub}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
  userValidationRules:
  - {expression: "!user.username.startsWith('corp:system:')", message: not the system's}
  - {expression: "user.groups.all(g, !g.startsWith('system:'))", message: nor its groups}
`)
	now := w.now.Unix()
	claims := func(change map[string]any) map[string]any {
		c := map[string]any{
			"iss":    p.server.URL,
			"aud":    "cluster",
			"sub":    "ann",
			"exp":    now + 3600,
			"iat":    now,
			"hd":     "example.com",
			"roles":  "devs,ops",
			"tenant": []string{"t1", "t2"},
			"jti":    "x",
		}
		for k, v := range change {
			if c[k] = v; v == nil {
				delete(c, k)
			}
		}
		return c
	}
	user, ok, err := w.authn.Authenticate(bearerRequest(p.token(claims(nil))))
	if err != nil || !ok || user.Name != "corp:ann" || user.UID != "ann" ||
		strings.Join(user.Groups, " ") != "devs ops system:authenticated" ||
		strings.Join(user.Extra["example.com/tenant"], " ") != "t1 t2" ||
		user.Extra[credentialID][0] != "JTI=x" {
		t.Fatalf("%+v %v %v", user, ok, err)
	}
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"expired":           {map[string]any{"exp": now - 1}, "expired"},
		"without an end":    {map[string]any{"exp": nil}, "expired"},
		"not yet":           {map[string]any{"nbf": now + 600}, "not valid yet"},
		"another audience":  {map[string]any{"aud": []string{"x"}}, "expected audience"},
		"another domain":    {map[string]any{"hd": "else.com"}, `the claim "hd" is not "example.com"`},
		"no domain":         {map[string]any{"hd": nil}, `the claim "hd" is not`},
		"too long":          {map[string]any{"exp": now + 90000}, "at most a day"},
		"no name":           {map[string]any{"sub": nil}, "find the user's name"},
		"the system's name": {map[string]any{"sub": "system:admin"}, "not the system's"},
		"its group":         {map[string]any{"roles": "system:masters"}, "nor its groups"},
		"another issuer":    {map[string]any{"iss": "https://else.example"}, "invalid bearer token"},
	} {
		if _, ok, err := w.authn.Authenticate(bearerRequest(p.token(claims(c.change)))); ok || err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v, want %q", name, ok, err, c.want)
		}
	}
	if n := p.keyRequests.Load(); n != 1 {
		t.Errorf("its keys were fetched %d times, want once", n)
	}
	checkKeyRotation(t, p, w, claims(nil))
}

// checkKeyRotation rotates the keys of the issuer.
func checkKeyRotation(t *testing.T, p *testIssuer, w *testServer, claims map[string]any) {
	// A new key is fetched with the first token that needs it, but tokens cannot cause fetches all the time.
	old := p.token(claims)
	p.rotate("two")
	if _, ok, _ := w.authn.Authenticate(bearerRequest(p.token(claims))); ok || p.keyRequests.Load() != 1 {
		t.Errorf("keys are fetched again at once, %d times", p.keyRequests.Load())
	}
	w.now = w.now.Add(refetchAfter)
	if _, ok, err := w.authn.Authenticate(bearerRequest(p.token(claims))); !ok {
		t.Errorf("the issuer's new key: %v", err)
	}
	if _, ok, _ := w.authn.Authenticate(bearerRequest(old)); ok {
		t.Error("a token of a key that the issuer withdrew is accepted")
	}
	p.rotate("two") // forged: the right key ID with another key
	if _, ok, _ := w.authn.Authenticate(bearerRequest(p.token(claims))); ok {
		t.Error("a forged token is accepted")
	}
	w.objects = apifake.New()
	if _, audiences, err := w.authn.Verify(t.Context(), old, []string{"vault"}); err == nil {
		t.Errorf("a token that is for this server alone is good for %v", audiences)
	}
}

func TestClaimsGetPrefixesAndNeedVerifiedEmails(t *testing.T) {
	p, w := newTestIssuer(t), newTestServer(t)
	w.configure(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: ` + p.server.URL + `, audiences: [cluster], certificateAuthority: "` + strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(p.ca(), "      ", "")), "\n", `\n`) + `"}
  claimMappings:
    username: {claim: email, prefix: "oidc:"}
    groups: {claim: groups, prefix: "oidc:"}
`)
	claims := map[string]any{
		"iss":    p.server.URL,
		"aud":    "cluster",
		"exp":    w.now.Unix() + 60,
		"email":  "ann@example.com",
		"groups": "devs",
	}
	user, ok, err := w.authn.Authenticate(bearerRequest(p.token(claims)))
	if !ok || user.Name != "oidc:ann@example.com" || user.Groups[0] != "oidc:devs" {
		t.Errorf("%+v %v", user, err)
	}
	claims["email_verified"] = false
	if _, ok, err := w.authn.Authenticate(bearerRequest(p.token(claims))); ok ||
		!strings.Contains(err.Error(), "email not verified") {
		t.Errorf("an address that is not confirmed: %v", err)
	}
}

func TestInvalidAuthenticationConfigurationsAreRejected(t *testing.T) {
	w := newTestServer(t)
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: Secret\n": "no kind",
		head + "jwt: [{issuer: {url: 'http://a', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: " +
			"''}}}]": "URL scheme must be https",
		head + "jwt: [{issuer: {url: 'https://a', audiences: []}, claimMappings: {username: {claim: sub, prefix: " +
			"''}}}]": "at least one issuer.audiences is required",
		head + "jwt: [{issuer: {url: 'https://a', audiences: [a]}, claimMappings: {username: {expression: " +
			"'claims.'}}}]": "compilation failed",
		head + "jwt: [{issuer: {url: 'https://kubernetes.default.svc.cluster.local', audiences: [a]}, claimMappings: " +
			"{username: {claim: sub, prefix: ''}}}]": "must not overlap with disallowed issuers",
		head + "jwts: []": "unknown field",
	} {
		w.cfg.AuthenticationConfig = w.file(t.TempDir(), "a.yaml", []byte(text))
		if _, err := New(w.cfg, w.objects, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestAnonymousPathsFollowTheConfiguration(t *testing.T) {
	w := newTestServer(t)
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for name, c := range map[string]struct {
		text                string
		health, mine, other bool
	}{
		"nothing said": {head, true, false, false},
		"off":          {head + "anonymous: {enabled: false}", false, false, false},
		"paths":        {head + "anonymous: {enabled: true, conditions: [{path: /mine}]}", false, true, false},
		"everything":   {head + "anonymous: {enabled: true}", true, true, true},
	} {
		w.configure(c.text)
		isAllowed := w.authn.Anonymous
		if isAllowed("/livez", true) != c.health || isAllowed("/mine", false) != c.mine ||
			isAllowed("/api", false) != c.other {
			t.Errorf("%s: %v %v %v", name, isAllowed("/livez", true), isAllowed("/mine", false),
				isAllowed("/api", false))
		}
	}
}

func TestBootstrapTokensAuthenticate(t *testing.T) {
	w := newTestServer(t)
	token := func(change map[string]string) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
			Type:       "bootstrap.kubernetes.io/token",
			Data: map[string][]byte{
				"token-id": []byte(
					"abcdef",
				), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
				"auth-extra-groups": []byte(
					"system:bootstrappers:kubeadm:default-node-token",
				), "expiration": []byte(w.now.Add(time.Hour).Format(time.RFC3339)),
			},
		}
		for k, v := range change {
			s.Data[k] = []byte(v)
		}
		return s
	}
	for name, c := range map[string]struct {
		token  string
		change map[string]string
		good   bool
	}{
		"good":           {"abcdef.0123456789abcdef", nil, true},
		"for ever":       {"abcdef.0123456789abcdef", map[string]string{"expiration": ""}, true},
		"another secret": {"abcdef.0123456789abcdee", nil, false},
		"another id":     {"abcdee.0123456789abcdef", nil, false},
		"not for that": {"abcdef.0123456789abcdef", map[string]string{"usage-bootstrap-authentication": "false"},
			false},
		"expired": {"abcdef.0123456789abcdef", map[string]string{"expiration": "2020-01-01T00:00:00Z"},
			false},
		"an end of nonsense": {"abcdef.0123456789abcdef", map[string]string{"expiration": "soon"}, false},
		"a group too much": {"abcdef.0123456789abcdef", map[string]string{"auth-extra-groups": "system:masters"},
			false},
		"no token at all": {"abcdef", nil, false},
	} {
		w.objects = apifake.New(token(c.change))
		w.build()
		user, ok, err := w.authn.Authenticate(bearerRequest(c.token))
		if ok != c.good || (err == nil) != c.good {
			t.Errorf("%s: %v %v", name, ok, err)
		} else if ok && (user.Name != "system:bootstrap:abcdef" ||
			strings.Join(user.Groups, " ") != "system:bootstrappers system:bootstrappers:kubeadm:default-node-token "+
				"system:authenticated") {
			t.Errorf("%s: %+v", name, user)
		}
	}
}

func TestWebhookResultsAreCached(t *testing.T) {
	var requests atomic.Int32
	broken := atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if broken.Load() {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status.Error = "never heard of it"
		if review.Spec.Token == "good" {
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true,
				Audiences:     review.Spec.Audiences,
				User: authenticationv1.UserInfo{
					Username: "ann",
					Groups:   []string{"devs"},
					Extra:    map[string]authenticationv1.ExtraValue{"K": {"v"}},
				},
			}
		}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	defer server.Close()
	w := newTestServer(t)
	w.cfg.AuthenticationTokenWebhookConfigFile = w.file(t.TempDir(), "hook.conf", []byte(fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: "+
			"{cluster: a}}]\ncurrent-context: a\n", server.URL)))
	w.build()
	for range 3 {
		if user, ok, err := w.authn.Authenticate(bearerRequest("good")); !ok || user.Name != "ann" ||
			user.Extra["k"][0] != "v" {
			t.Fatalf("%+v %v", user, err)
		}
		if _, ok, err := w.authn.Authenticate(bearerRequest("bad")); ok || err == nil ||
			!strings.Contains(err.Error(), "never heard of it") {
			t.Fatal(err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("it was asked %d times, want twice", requests.Load())
	}
	if _, audiences, err := w.authn.Verify(context.Background(), "good", []string{"vault"}); err != nil ||
		audiences[0] != "vault" ||
		requests.Load() != 3 {
		t.Errorf("%v %v, asked %d times", audiences, err, requests.Load())
	}
	w.now = w.now.Add(w.cfg.AuthenticationTokenWebhookCacheTTL)
	broken.Store(true)
	if _, ok, err := w.authn.Authenticate(bearerRequest("good")); ok || err == nil {
		t.Error("a token is good whose webhook does not answer")
	}
	broken.Store(false)
	if _, ok, err := w.authn.Authenticate(bearerRequest("good")); !ok {
		t.Errorf("a failure is remembered: %v", err)
	}
}

func TestWebSocketProtocolsCarryTokens(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/exec", nil)
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Protocol",
		"v5.channel.k8s.io, "+socketToken+base64.RawURLEncoding.EncodeToString([]byte("token")))
	if token, _ := bearerToken(r); token != "token" || r.Header.Get("Sec-WebSocket-Protocol") != "v5.channel.k8s.io" {
		t.Errorf("%q, and left is %q", token, r.Header.Get("Sec-WebSocket-Protocol"))
	}
	var _ api.Authenticator = &bearer{}
}
