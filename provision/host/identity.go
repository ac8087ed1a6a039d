package host

import (
	"crypto/sha256"
	"encoding/hex"

	"clusterctl/certs"
)

// ClusterCAPath is where the authority's certificate of the cluster lies that a machine serves.
const ClusterCAPath = "/etc/kubernetes/pki/ca.crt"

// ClusterCA returns the fingerprint of the authority of the cluster that a machine serves, empty if it serves none.
func ClusterCA(files Files) string {
	text, err := files.ReadFile(ClusterCAPath)
	if err != nil {
		return ""
	}
	return Fingerprint(text)
}

// Fingerprint names a certificate: SHA-256, in hex. It is empty for what is no certificate.
func Fingerprint(pem []byte) string {
	cert, err := certs.ParseCert(pem)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}
