package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/config"
)

const fuzzAuthentication = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "https://issuer.example.com", audiences: [cluster]}
  claimValidationRules:
  - {expression: "claims.exp - claims.iat <= 86400"}
  claimMappings:
    username: {expression: "'corp:' + claims.sub"}
    groups: {expression: "claims.roles.split(',')"}
    uid: {claim: sub}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
  userValidationRules:
  - {expression: "!user.username.startsWith('corp:system:')"}
- issuer: {url: "https://other.example.com", audiences: [cluster]}
  claimMappings:
    username: {claim: email, prefix: "oidc:"}
    groups: {claim: groups, prefix: "oidc:"}
`

// FuzzToken presents arbitrary tokens, and arbitrary claims that an issuer has signed. Unknown users must be refused,
// and no token may give a system user.
func FuzzToken(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}},
		nil)
	if err != nil {
		f.Fatal(err)
	}
	private, public, err := certs.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			f.Fatal(err)
		}
		return path
	}
	cfg := config.DefaultAPIServer()
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{
		file("sa.pub", public),
	}, file("sa.key", private)
	cfg.AuthenticationConfig = file("authentication.yaml", []byte(fuzzAuthentication))
	now := time.Now()
	a, err := New(cfg, apifake.New(), func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	for _, way := range a.File.Get().issuers.verifiers {
		issuer := way.(*externalIssuer).issuer // its keys have been set
		issuer.keys, issuer.fetched = []jose.JSONWebKey{{Key: key.Public(), KeyID: "one"}}, now
	}
	until := now.Add(10 * 365 * 24 * time.Hour).Unix()
	for _, text := range []string{
		`{"iss":"https://issuer.example.com","aud":"cluster","sub":"ann","exp":` + formatNumber(until) + `,"iat":` + formatNumber(until-60) + `,"roles":"a,b","tenant":["t"]}`,
		`{"iss":"https://other.example.com","aud":["cluster"],"email":"a@b","exp":` + formatNumber(until) + `,"groups":[1,null,{"a":["b"]}],"email_verified":true}`,
		`{"iss":"https://other.example.com","aud":["cluster"],"email":{"a":1},"exp":1e300}`,
		`{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:a:b","kubernetes.io":{"namespace":"a"}}`,
	} {
		f.Add("Bearer eyJhbGciOiJFUzI1NiJ9.e30.AA", []byte(text))
	}
	f.Fuzz(func(t *testing.T, header string, claims []byte) {
		present := func(header string) {
			r := httptest.NewRequest(http.MethodGet, "/api", nil)
			r.Header["Authorization"] = []string{header}
			user, ok, err := a.Authenticate(r)
			if !ok && err == nil && r.Header.Get("Authorization") == "Bearer x" ||
				ok && (user.Name == "" || user.InGroup(api.GroupMasters)) {
				t.Errorf("%q is %+v, %v", header, user, err)
			}
			if err != nil && !errors.Is(err, errInvalidToken) {
				t.Logf("refused by %v", err)
			}
		}
		present(header)
		if token, err := jwt.Signed(signer).Claims(json.RawMessage(claims)).Serialize(); err == nil {
			present("Bearer " + token)
		}
		var any map[string]any
		if json.Unmarshal(claims, &any) == nil {
			for _, way := range a.File.Get().issuers.verifiers {
				_, err := way.(*externalIssuer).mapping.user(t.Context(), any)
				_ = err // claims that cannot be mapped are refused
			}
		}
	})
}

func formatNumber(n int64) string {
	text, _ := json.Marshal(n)
	return string(text)
}
