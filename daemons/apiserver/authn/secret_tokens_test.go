package authn

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/accountkey"
)

// A token in a Secret is valid as long as the Secret contains it and its account is the same.
// Proves S12.
func TestSecretTokensAreValidWhileStored(t *testing.T) {
	w := newTestServer(t)
	signer, _, err := accountkey.Signer(w.cfg.ServiceAccountSigningKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(subject string, c accountkey.LegacyClaims) string {
		token, err := jwt.Signed(signer).
			Claims(jwt.Claims{Issuer: accountkey.LegacyIssuer, Subject: subject}).
			Claims(c).
			Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	claims := accountkey.LegacyClaims{Namespace: "shop", Secret: "s", AccountName: "web", AccountUID: "sa-1"}
	good := signed("system:serviceaccount:shop:web", claims)
	secret := func(token string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", Labels: labels},
			Data:       map[string][]byte{"token": []byte(token)},
		}
	}
	former := claims
	former.AccountUID = "sa-0"
	for what, c := range map[string]struct {
		token   string
		stored  *corev1.Secret
		wanted  []string
		refused string
	}{
		"it lies there":      {good, secret(good, nil), nil, ""},
		"for this server":    {good, secret(good, nil), []string{w.cfg.ServiceAccountIssuer}, ""},
		"for somebody else":  {good, secret(good, nil), []string{"vault"}, "is invalid for the target audiences"},
		"its secret is gone": {good, nil, nil, "secret s has been deleted"},
		"another lies there": {good, secret("x", nil), nil, "it is not the token of secret s any more"},
		"it is marked": {good, secret(good, map[string]string{invalidSinceLabel: "2026-01-01"}), nil,
			"has been marked invalid"},
		"of a former account": {signed("system:serviceaccount:shop:web", former),
			secret(signed("system:serviceaccount:shop:web", former), nil), nil, "service account UID (sa-1) does not " +
				"match claim (sa-0)"},
		"in the name of another": {signed("system:serviceaccount:shop:other", claims),
			secret(signed("system:serviceaccount:shop:other", claims), nil), nil, "invalid bearer token"},
		"that names no secret": {signed("system:serviceaccount:shop:web",
			accountkey.LegacyClaims{Namespace: "shop", AccountName: "web", AccountUID: "sa-1"}), nil, nil,
			"invalid bearer token"},
		"that somebody else made": {good[:len(good)-4] + "AAAA", secret(good[:len(good)-4]+"AAAA", nil), nil,
			"invalid bearer token"},
	} {
		w.objects.Remove(secret("", nil))
		if c.stored != nil {
			w.objects.Put(c.stored)
		}
		u, _, err := w.authn.Verify(t.Context(), c.token, c.wanted)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
		if err == nil &&
			(u.Name != "system:serviceaccount:shop:web" || u.UID != "sa-1" ||
				!u.InGroup("system:serviceaccounts:shop")) {
			t.Errorf("%s: %+v", what, u)
		}
	}
}
