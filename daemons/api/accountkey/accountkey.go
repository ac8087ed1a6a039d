// Package accountkey is shared by the components that create and that verify service account tokens. It defines the
// signing keys, and the claims of tokens in Secrets. The API server decides whether a token is valid.
package accountkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"

	"clusterctl/certs"
)

// Describe returns the id of a key, which is a digest of the key, and its algorithm.
func Describe(key crypto.PublicKey) (id string, algorithm jose.SignatureAlgorithm, err error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", "", fmt.Errorf("encode a public key: %w", err)
	}
	digest := sha256.Sum256(der)
	id = base64.RawURLEncoding.EncodeToString(digest[:])
	switch key := key.(type) {
	case *rsa.PublicKey:
		return id, jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return id, jose.ES256, nil
		case elliptic.P384():
			return id, jose.ES384, nil
		case elliptic.P521():
			return id, jose.ES512, nil
		}
	}
	return "", "", fmt.Errorf("keys of type %T cannot sign tokens: take an RSA or ECDSA key", key)
}

// Signer reads the private key in a file. It also returns the public key. Tokens that the signer signs contain the
// key's id.
func Signer(file string) (jose.Signer, crypto.PublicKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the service-account signing key: %w", err)
	}
	private, err := certs.ParseKey(text)
	if err != nil {
		return nil, nil, fmt.Errorf("read the service-account signing key %s: %w", file, err)
	}
	id, algorithm, err := Describe(private.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("read the service-account signing key %s: %w", file, err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: id, Algorithm: string(algorithm)},
	}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the service-account signer: %w", err)
	}
	return signer, private.Public(), nil
}

// LegacyIssuer is the issuer of tokens in Secrets. They do not expire and are used outside of the cluster.
const LegacyIssuer = "kubernetes/serviceaccount"

// LegacyClaims are the claims of a token in a Secret.
type LegacyClaims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret      string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}
