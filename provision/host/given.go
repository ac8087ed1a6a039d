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

// Given is what a machine was given of the secrets of its cluster, told by digests: by it a state is known that is
// older than the cluster.
type Given struct {
	// of the public keys of those that sign, by ServiceAccountKey and the names of authorities
	Signers map[string]string `json:"signers,omitempty"`
	// of the keys that values in the store are encrypted with
	Encryption []string `json:"encryption,omitempty"`
	Revoked    []string `json:"revoked,omitempty"` // serial numbers of certificates, hexadecimal
}

// ServiceAccountKey names the key that signs service accounts' tokens.
const ServiceAccountKey = "sa"

const pki = "/etc/kubernetes/pki/"

// GivenTo reads it on a machine of the control plane; nodes have no keys. What is not there, or cannot be read, says
// nothing.
func GivenTo(files Files) Given {
	if _, err := files.Stat(pki + certs.ClusterCA + ".key"); err != nil {
		return Given{}
	}
	g := Given{Signers: map[string]string{}}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA, ServiceAccountKey} {
		if text, err := files.ReadFile(pki + name + ".key"); err == nil {
			if d := SignerDigest(text); d != "" {
				g.Signers[name] = d
			}
		}
	}
	if text, err := files.ReadFile(pki + "encryption.yaml"); err == nil {
		g.Encryption = encryptionKeys(text)
	}
	for _, name := range []string{"ca.crl", "etcd/ca.crl", "apiserver-clients.crl"} {
		text, err := files.ReadFile(pki + name)
		if err != nil {
			continue
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			g.revoked(block.Bytes)
		}
		g.revoked(text) // DER
	}
	return g
}

func (g *Given) revoked(der []byte) {
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

// SignerDigest is of the public part of a PEM text: a private key, a public one, or the first certificate. It is empty
// for anything else.
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

// KeyDigest tells one key from others.
func KeyDigest(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// encryptionKeys are the digests of the keys in an EncryptionConfiguration. A plugin has its keys itself.
func encryptionKeys(text []byte) (digests []string) {
	var c struct {
		Resources []struct {
			Providers []map[string]*struct {
				Keys []struct{ Secret []byte } // base64, as in all JSON
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
