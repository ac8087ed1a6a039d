package authn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

// Issuers are accepted, and rejected again, when the configuration file changes.
// Proves S12.
func TestIssuersFollowTheConfigurationFile(t *testing.T) {
	p, w := newTestIssuer(t), newTestServer(t)
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	issuer := func(prefix string) string {
		return head + "jwt:\n- issuer:\n    url: " + p.server.URL + "\n    audiences: [cluster]\n    " +
			"certificateAuthority: |\n" + p.ca() +
			"\n  claimMappings:\n    username: {claim: sub, prefix: '" + prefix + "'}\n"
	}
	w.configure(head)
	token := p.token(map[string]any{"iss": p.server.URL, "aud": "cluster", "sub": "ann", "exp": w.now.Unix() + 3600})
	for _, step := range []struct{ name, text, user, err string }{
		{"not named", head, "", ""},
		{"named", issuer("a:"), "a:ann", ""},
		{"with another prefix", issuer("b:"), "b:ann", ""},
		{"nonsense", head + "jwt: 1", "b:ann", "cannot unmarshal"},
		{"an expression of nonsense", strings.Replace(issuer(""), "{claim: sub, prefix: "+
			"''}", "{expression: 'claims.'}", 1), "b:ann", "compilation failed"},
		{"gone", head + "anonymous: {enabled: false}", "", ""},
	} {
		if err := os.WriteFile(w.cfg.AuthenticationConfig, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.authn.File.Reload(); (err == nil) != (step.err == "") ||
			err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %v, want %q", step.name, err, step.err)
		}
		user, ok, _ := w.authn.Authenticate(bearerRequest(token))
		if ok != (step.user != "") || user.Name != step.user {
			t.Errorf("%s: known as %q", step.name, user.Name)
		}
	}
	if w.authn.Anonymous("/livez", true) {
		t.Error("who has no credentials may still ask for what the file no longer lets everybody")
	}
}

// Keys of service-account tokens are rotated while the server runs. A new key signs. Tokens of the former key are valid
// while the file has that key, and then refused, even if they were cached. An invalid file changes nothing.
// Proves S12.
func TestServiceAccountKeysAreReloaded(t *testing.T) {
	w := newTestServer(t)
	next, nextPublic, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	public := w.cfg.ServiceAccountKeyFiles[0]
	former, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string, text []byte) {
		t.Helper()
		w.file(filepath.Dir(path), filepath.Base(path), text)
		w.now = w.now.Add(keyCheckInterval)
	}
	isKnown := func(when, token string, want bool) {
		t.Helper()
		if _, ok, _ := w.authn.Authenticate(bearerRequest(token)); ok != want {
			t.Errorf("%s: known is %t", when, ok)
		}
	}
	before, err := w.issue(nil)
	if err != nil {
		t.Fatal(err)
	}
	isKnown("at first", before, true)
	put(public, []byte("no key"))
	isKnown("with nonsense", before, true)
	put(public, append(nextPublic, former...))
	put(w.cfg.ServiceAccountSigningKeyFile, next)
	now, err := w.issue(nil)
	if err != nil {
		t.Fatal(err)
	}
	isKnown("a token of before, with both keys", before, true)
	isKnown("a token of the new key", now, true)
	put(public, nextPublic)
	isKnown("a token of a key that is gone", before, false)
	isKnown("a token of the key that stays", now, true)
	if keys := w.authn.Tokens().keys.current().verifying; len(keys) != 1 {
		t.Errorf("%d keys are published", len(keys))
	}
	w.now = w.now.Add(time.Second)
	isKnown("again", before, false)
}
