package authn

import (
	"os"
	"strings"
	"testing"
)

// S12: an issuer is known, and no more, as soon as the file that names it says so.
func TestIssuersComeAndGoWithTheirFile(t *testing.T) {
	p, w := newProvider(t), newWorld(t)
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	issuer := func(prefix string) string {
		return head + "jwt:\n- issuer:\n    url: " + p.server.URL + "\n    audiences: [cluster]\n    certificateAuthority: |\n" + p.ca() +
			"\n  claimMappings:\n    username: {claim: sub, prefix: '" + prefix + "'}\n"
	}
	w.configure(head)
	token := p.token(map[string]any{"iss": p.server.URL, "aud": "cluster", "sub": "ann", "exp": w.at.Unix() + 3600})
	for _, step := range []struct{ name, text, user, err string }{
		{"not named", head, "", ""},
		{"named", issuer("a:"), "a:ann", ""},
		{"with another prefix", issuer("b:"), "b:ann", ""},
		{"nonsense", head + "jwt: 1", "b:ann", "cannot unmarshal"},
		{"an expression of nonsense", strings.Replace(issuer(""), "{claim: sub, prefix: ''}", "{expression: 'claims.'}", 1), "b:ann", "compilation failed"},
		{"gone", head + "anonymous: {enabled: false}", "", ""},
	} {
		if err := os.WriteFile(w.cfg.AuthenticationConfig, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.authn.File.Reload(); (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %v, want %q", step.name, err, step.err)
		}
		user, ok, _ := w.authn.Authenticate(bearing(token))
		if ok != (step.user != "") || user.Name != step.user {
			t.Errorf("%s: known as %q", step.name, user.Name)
		}
	}
	if w.authn.Anonymous("/livez", true) {
		t.Error("who has no credentials may still ask for what the file no longer lets everybody")
	}
}
