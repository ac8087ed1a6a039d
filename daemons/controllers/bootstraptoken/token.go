// Package bootstraptoken manages the tokens with which machines join. It deletes expired tokens. With the others it
// signs cluster-info, which a machine reads before it trusts the cluster. The API server decides who may use a token.
package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	secretPrefix    = "bootstrap-token-"
	signaturePrefix = "jws-kubeconfig-"
)

var (
	validID     = regexp.MustCompile(`^[a-z0-9]{6}$`)
	validSecret = regexp.MustCompile(`^[a-z0-9]{16}$`)
)

// isToken reports whether a Secret is a bootstrap token.
func isToken(s *corev1.Secret) bool {
	return s.Namespace == metav1.NamespaceSystem && s.Type == corev1.SecretTypeBootstrapToken
}

// remainingTime returns how long a token is still valid. Zero without isOver means forever. A token with an invalid
// time counts as expired.
func remainingTime(s *corev1.Secret, now time.Time) (remaining time.Duration, isOver bool) {
	text := string(s.Data["expiration"])
	if text == "" {
		return 0, false
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil || !now.Before(until) {
		return 0, true
	}
	return until.Sub(now), false
}

// signingToken returns the id and the secret of a token that may sign. It reports false for other Secrets.
func signingToken(s *corev1.Secret, now time.Time) (id, secret string, ok bool) {
	id, secret = string(s.Data["token-id"]), string(s.Data["token-secret"])
	_, isOver := remainingTime(s, now)
	ok = isToken(s) && s.DeletionTimestamp == nil && !isOver && string(s.Data["usage-bootstrap-signing"]) == "true" &&
		s.Name == secretPrefix+id && validID.MatchString(id) && validSecret.MatchString(secret)
	return id, secret, ok
}

// detachedSignature returns the signature of content by a token, as a JWS with detached content.
func detachedSignature(content, id, secret string) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		Key       string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	head := base64.RawURLEncoding.EncodeToString(header)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(head + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	return head + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// withSignatures returns the data of cluster-info with the signatures of exactly the tokens that may sign. Without a
// kubeconfig there is nothing to sign, and the data stays unchanged.
func withSignatures(data map[string]string, secrets []*corev1.Secret, now time.Time) (map[string]string, error) {
	content, ok := data["kubeconfig"]
	if !ok {
		return data, nil
	}
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, signaturePrefix) })
	for _, s := range secrets {
		if id, secret, ok := signingToken(s, now); ok {
			signature, err := detachedSignature(content, id, secret)
			if err != nil {
				return nil, err
			}
			out[signaturePrefix+id] = signature
		}
	}
	return out, nil
}
