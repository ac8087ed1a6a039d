package host

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"

	"sigs.k8s.io/yaml"

	"clusterctl/certs"
)

// SecretDigests holds digests of the cluster secrets that a machine has. They reveal a state that is older than the
// cluster.
type SecretDigests struct {
	// Signers holds digests of the public keys of signing keys, by ServiceAccountKey or the name of the authority.
	Signers map[string]string `json:"signers,omitempty"`
	// Encryption holds digests of the keys that encrypt values in the store.
	Encryption []string `json:"encryption,omitempty"`
	Revoked    []string `json:"revoked,omitempty"` // serial numbers of certificates, hexadecimal
}

// ServiceAccountKey is the name of the key that signs service account tokens.
const ServiceAccountKey = "sa"

const pkiDir = "/etc/kubernetes/pki/"

// ReadSecretDigests reads a control-plane machine's SecretDigests; nodes have no keys. Files that are missing or cannot
// be read are left out.
func ReadSecretDigests(files Files) SecretDigests {
	if _, err := files.Stat(pkiDir + certs.ClusterCA + ".key"); err != nil {
		return SecretDigests{}
	}
	g := SecretDigests{Signers: map[string]string{}}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA, ServiceAccountKey} {
		if text, err := files.ReadFile(pkiDir + name + ".key"); err == nil {
			if d := SignerDigest(text); d != "" {
				g.Signers[name] = d
			}
		}
	}
	if text, err := files.ReadFile(pkiDir + "encryption.yaml"); err == nil {
		g.Encryption = encryptionKeys(text)
	}
	for _, name := range []string{"ca.crl", "etcd/ca.crl", "apiserver-clients.crl"} {
		text, err := files.ReadFile(pkiDir + name)
		if err != nil {
			continue
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			g.addRevoked(block.Bytes)
		}
		g.addRevoked(text) // DER
	}
	return g
}

func (g *SecretDigests) addRevoked(der []byte) {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return
	}
	for _, e := range list.RevokedCertificateEntries {
		if serial := e.SerialNumber.Text(16); !slices.Contains(g.Revoked, serial) {
			g.Revoked = append(g.Revoked, serial)
		}
	}
}

// SignerDigest returns the digest of the public key in a PEM text: a private key, a public key, or the first
// certificate. It returns "" for anything else.
func SignerDigest(text []byte) string {
	if key, err := certs.ParseKey(text); err == nil {
		if public, err := x509.MarshalPKIXPublicKey(key.Public()); err == nil {
			return KeyDigest(public)
		}
	}
	if cert, err := certs.ParseCert(text); err == nil {
		return KeyDigest(cert.RawSubjectPublicKeyInfo)
	}
	if block, _ := pem.Decode(text); block != nil && block.Type == "PUBLIC KEY" {
		return KeyDigest(block.Bytes)
	}
	return ""
}

// KeyDigest returns a digest that identifies a key.
func KeyDigest(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// encryptionKeys returns the digests of the keys in an EncryptionConfiguration. Keys of a KMS plugin are not in it.
func encryptionKeys(text []byte) (digests []string) {
	var c struct {
		Resources []struct {
			Providers []map[string]*struct {
				Keys []struct{ Secret []byte } // base64, as Go decodes byte slices from JSON
			}
		}
	}
	if yaml.Unmarshal(text, &c) != nil {
		return nil
	}
	for _, r := range c.Resources {
		for _, p := range r.Providers {
			for _, by := range p {
				for i := 0; by != nil && i < len(by.Keys); i++ {
					if d := KeyDigest(by.Keys[i].Secret); !slices.Contains(digests, d) {
						digests = append(digests, d)
					}
				}
			}
		}
	}
	return digests
}
