package authn

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"

	"clusterctl/certs"
	"clusterctl/daemons/api/accountkey"
)

// keySet holds the keys of service-account tokens: those that verify, and the signing key.
type keySet struct {
	verifying []jose.JSONWebKey
	signer    jose.Signer // nil if this server issues no tokens
}

func readKeys(publicFiles []string, signingFile string) (*keySet, error) {
	keys := &keySet{}
	for _, file := range publicFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read service-account keys: %w", err)
		}
		found, err := publicKeys(text)
		if err != nil {
			return nil, fmt.Errorf("read service-account keys %s: %w", file, err)
		}
		for _, key := range found {
			if err := keys.add(key); err != nil {
				return nil, fmt.Errorf("read service-account keys %s: %w", file, err)
			}
		}
	}
	if signingFile == "" {
		return keys, nil
	}
	signer, public, err := accountkey.Signer(signingFile)
	if err != nil {
		return nil, err
	}
	keys.signer = signer
	if err := keys.add(public); err != nil {
		return nil, fmt.Errorf("read the service-account signing key %s: %w", signingFile, err)
	}
	return keys, nil
}

// add adds a verification key, unless it is in the set already.
func (k *keySet) add(key crypto.PublicKey) error {
	id, alg, err := accountkey.Describe(key)
	if err != nil {
		return err
	}
	for _, current := range k.verifying {
		if current.KeyID == id {
			return nil
		}
	}
	k.verifying = append(k.verifying, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"})
	return nil
}

// candidates returns the keys that may have signed a token with the key ID.
func (k *keySet) candidates(id string) []jose.JSONWebKey {
	for _, key := range k.verifying {
		if key.KeyID == id {
			return []jose.JSONWebKey{key}
		}
	}
	return k.verifying
}

// publicKeys reads public keys from a PEM text. It also accepts private keys and certificates, and uses their public
// keys.
func publicKeys(text []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var c *x509.Certificate
			if c, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = c.PublicKey
			}
		case "PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY":
			var s crypto.Signer
			if s, err = certs.ParseKey(pem.EncodeToMemory(block)); err == nil {
				key = s.Public()
			}
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no key in the PEM text")
	}
	return keys, nil
}
