package host

import (
	"crypto/sha256"
	"encoding/hex"

	"clusterctl/certs"
)

// ClusterCAPath is the path of the certificate of the cluster's authority on a machine.
const ClusterCAPath = "/etc/kubernetes/pki/ca.crt"

// ClusterCA returns the fingerprint of the authority of the cluster that a machine serves, or "" if it serves none.
func ClusterCA(files Files) string {
	text, err := files.ReadFile(ClusterCAPath)
	if err != nil {
		return ""
	}
	return Fingerprint(text)
}

// Fingerprint returns the SHA-256 of a certificate in hex, or "" if the text is not a certificate.
func Fingerprint(pem []byte) string {
	cert, err := certs.ParseCert(pem)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}
