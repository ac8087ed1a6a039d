package accounttoken

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/certs"
	"clusterctl/daemons/api/accountkey"
)

func TestMissingDataIsAddedToTheSecret(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	secret := func(uid string, data map[string][]byte) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "shop",
				Name:        "s",
				Annotations: map[string]string{corev1.ServiceAccountNameKey: "web"},
			},
			Data: data,
		}
		if uid != "" {
			s.Annotations[corev1.ServiceAccountUIDKey] = uid
		}
		return s
	}
	token := func() (string, error) { return "t", nil }
	for what, c := range map[string]struct {
		secret           *corev1.Secret
		ca               string
		token, crt, name string // empty means that nothing is written
	}{
		"an empty one": {secret("", nil), "ca", "t", "ca", "shop"},
		"a full one": {secret("1",
			map[string][]byte{"token": []byte("x"), "ca.crt": []byte("ca"), "namespace": []byte("shop")}), "ca", "", "",
			""},
		"of a former bundle": {secret("1",
			map[string][]byte{"token": []byte("x"), "ca.crt": []byte("old"), "namespace": []byte("shop")}), "ca", "x",
			"ca", "shop"},
		"without a uid": {secret("",
			map[string][]byte{"token": []byte("x"), "ca.crt": []byte("ca"), "namespace": []byte("else")}), "ca", "x",
			"ca", "else"},
		"without a bundle": {secret("1", map[string][]byte{"token": []byte("x"), "namespace": []byte("shop")}), "", "",
			"", ""},
	} {
		got, err := fillSecret(c.secret, account, []byte(c.ca), token)
		if err != nil || (got == nil) != (c.token == "") {
			t.Errorf("%s: %v %v", what, got, err)
			continue
		}
		if got != nil &&
			(string(got.Data["token"]) != c.token || string(got.Data["ca.crt"]) != c.crt ||
				string(got.Data["namespace"]) != c.name || got.Annotations[corev1.ServiceAccountUIDKey] != "1") {
			t.Errorf("%s: %q %v", what, got.Data, got.Annotations)
		}
	}
	if got, err := fillSecret(secret("", nil), account, nil,
		func() (string, error) { return "", errors.New("no key") }); err == nil ||
		got != nil {
		t.Errorf("without a key: %v %v", got, err)
	}
}

func TestTokensNameTheirAccountAndSecret(t *testing.T) {
	private, _, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(file, private, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := signToken(file, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := certs.ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var std jwt.Claims
	var own accountkey.LegacyClaims
	if err := parsed.Claims(key.Public(), &std, &own); err != nil {
		t.Fatal(err)
	}
	if want := (accountkey.LegacyClaims{Namespace: "shop", Secret: "s", AccountName: "web",
		AccountUID: "1"}); own != want ||
		std.Issuer != accountkey.LegacyIssuer ||
		std.Subject != "system:serviceaccount:shop:web" ||
		std.Expiry != nil ||
		parsed.Headers[0].KeyID == "" {
		t.Errorf("%+v %+v", std, own)
	}
	if _, err := signToken(file+".none", &corev1.Secret{}, &corev1.ServiceAccount{}); err == nil {
		t.Error("signed without a key")
	}
}
