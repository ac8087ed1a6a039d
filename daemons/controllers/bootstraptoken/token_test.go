package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newTokenSecret(id, expiration, signs string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretPrefix + id},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id":                []byte(id),
			"token-secret":            []byte("0123456789abcdef"),
			"expiration":              []byte(expiration),
			"usage-bootstrap-signing": []byte(signs),
		},
	}
}

// Proves S12.
func TestTokenExpiration(t *testing.T) {
	for text, want := range map[string]struct {
		left   time.Duration
		isOver bool
	}{
		"":                          {0, false},
		"2026-05-01T12:00:01Z":      {time.Second, false},
		"2026-05-01T12:00:00Z":      {0, true},
		"2026-05-01T14:00:00+01:00": {time.Hour, false},
		"2020-01-01T00:00:00Z":      {0, true},
		"tomorrow":                  {0, true},
	} {
		if remaining, isOver := remainingTime(newTokenSecret("abcdef", text, "true"), now); remaining != want.left ||
			isOver != want.isOver {
			t.Errorf("%q: %s, %v", text, remaining, isOver)
		}
	}
}

// Proves S12.
func TestOnlySigningTokensSign(t *testing.T) {
	wrong, short := newTokenSecret("wrong1", "", "true"), newTokenSecret("short1", "", "true")
	wrong.Name = secretPrefix + "other1"
	short.Data["token-secret"] = []byte("short")
	opaque, elsewhere := newTokenSecret("opaque", "", "true"), newTokenSecret("elsewh", "", "true")
	opaque.Type, elsewhere.Namespace = corev1.SecretTypeOpaque, "default"
	secrets := []*corev1.Secret{
		newTokenSecret("abcdef", "2026-06-01T00:00:00Z", "true"),
		newTokenSecret("expire", "2026-04-01T00:00:00Z", "true"),
		newTokenSecret("nosign", "", "false"),
		wrong,
		short,
		opaque,
		elsewhere,
	}
	got, err := withSignatures(
		map[string]string{"kubeconfig": "apiVersion: v1", "other": "kept", "jws-kubeconfig-former": "old"},
		secrets,
		now,
	)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key := range got {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"jws-kubeconfig-abcdef", "kubeconfig", "other"}) {
		t.Errorf("it holds %v", keys)
	}
	// Verify it as a machine does: put the content back between the dots.
	head, signature, _ := strings.Cut(got["jws-kubeconfig-abcdef"], "..")
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	mac.Write([]byte(head + "." + base64.RawURLEncoding.EncodeToString([]byte("apiVersion: v1"))))
	if header, err := base64.RawURLEncoding.DecodeString(head); err != nil ||
		string(header) != `{"alg":"HS256","kid":"abcdef"}` {
		t.Errorf("header %s, %v", header, err)
	}
	if signature != base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %s", signature)
	}
	if got, _ := withSignatures(map[string]string{"jws-kubeconfig-former": "old"}, secrets, now); len(got) != 1 {
		t.Errorf("without a kubeconfig it is changed: %v", got)
	}
	if soonest := untilNextExpiry(secrets, now); soonest != 30*24*time.Hour+12*time.Hour {
		t.Errorf("the next ends in %s", soonest)
	}
}
