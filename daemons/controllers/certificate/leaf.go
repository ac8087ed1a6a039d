package certificate

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"clusterctl/certs"
)

// NotBefore lies before the time of signing, for clients whose clocks are behind. Lifetimes below shortLifetime count
// from now on, longer ones from NotBefore. No lifetime is below minLifetime, so that a certificate does not expire
// while it is being fetched.
const (
	backdate      = 5 * time.Minute
	shortLifetime = 8 * time.Hour
	minLifetime   = 10 * time.Minute
)

// signers holds the signers that this controller signs for, each with the function that refuses requests.
var signers = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeAPIServerClientSignerName:        refuseClient,
	certificatesv1.KubeAPIServerClientKubeletSignerName: refuseKubeletClient,
	certificatesv1.KubeletServingSignerName:             refuseKubeletServing,
}

// parseRequest returns the X.509 request that a CertificateSigningRequest contains.
func parseRequest(request *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("parse request %s: it is not a PEM block of type CERTIFICATE REQUEST", request.Name)
	}
	requested, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse request %s: %w", request.Name, err)
	}
	return requested, nil
}

// checkRequest returns why a request's signer does not grant it, or nil if it does. The text becomes the message of the
// condition Failed.
func checkRequest(request *certificatesv1.CertificateSigningRequest, requested *x509.CertificateRequest) error {
	refuse := signers[request.Spec.SignerName]
	if refuse == nil {
		return fmt.Errorf("unrecognized signerName: %q", request.Spec.SignerName)
	}
	return refuse(requested, request.Spec.Usages)
}

// refuseClient checks requests for clients of the API server. It allows any subject and any alternative names, since
// the approver has seen them.
func refuseClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

func refuseKubeletClient(requested *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(requested.Subject.Organization, []string{"system:nodes"}):
		return errNotNodes
	case len(requested.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(requested.EmailAddresses) > 0:
		return errMail
	case len(requested.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(requested.URIs) > 0:
		return errURI
	case !strings.HasPrefix(requested.Subject.CommonName, "system:node:"):
		return errNotNode
	}
	return refuseUsages(usages, certificatesv1.UsageClientAuth)
}

func refuseKubeletServing(requested *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(requested.Subject.Organization, []string{"system:nodes"}):
		return errNotNodes
	case len(requested.DNSNames)+len(requested.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(requested.EmailAddresses) > 0:
		return errMail
	case len(requested.URIs) > 0:
		return errURI
	}
	if err := refuseUsages(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !strings.HasPrefix(requested.Subject.CommonName, "system:node:") {
		return errNotNode
	}
	return nil
}

// refusalError is the reason why a request is not signed, in the words that clients know from upstream.
type refusalError string

func (u refusalError) Error() string { return string(u) }

const (
	errNotNodes = refusalError("subject organization is not system:nodes")
	errNotNode  = refusalError("subject common name does not begin with system:node:")
	errMail     = refusalError("Email subjectAltNames are not allowed")
	errURI      = refusalError("URI subjectAltNames are not allowed")
)

// refuseUsages requires exactly the usages that a kubelet's certificate needs: digital signature and purpose. RSA keys
// may have key encipherment too.
func refuseUsages(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	all := []certificatesv1.KeyUsage{purpose, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	slices.Sort(all)
	for _, usage := range usages {
		if !slices.Contains(all, usage) {
			return fmt.Errorf("usages did not match %v", all)
		}
	}
	if !slices.Contains(usages, purpose) || !slices.Contains(usages, certificatesv1.UsageDigitalSignature) {
		return fmt.Errorf("usages did not match %v", all)
	}
	return nil
}

// newCertificate returns the certificate for a granted request. It takes over the subject, the alternative names and
// the usages, and nothing else of the request.
func newCertificate(
	request *certificatesv1.CertificateSigningRequest,
	requested *x509.CertificateRequest,
	longest time.Duration,
	now time.Time,
) *x509.Certificate {
	lifetime := cmp.Or(longest, certs.LeafLifetime)
	if s := request.Spec.ExpirationSeconds; s != nil {
		lifetime = min(max(time.Duration(*s)*time.Second, minLifetime), lifetime)
	}
	template := &x509.Certificate{
		Subject: requested.Subject, DNSNames: requested.DNSNames, IPAddresses: requested.IPAddresses,
		EmailAddresses: requested.EmailAddresses, URIs: requested.URIs,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
	}
	if lifetime >= shortLifetime {
		template.NotAfter = template.NotAfter.Add(-backdate)
	}
	for _, usage := range request.Spec.Usages { // other usages are not granted
		switch usage {
		case certificatesv1.UsageDigitalSignature:
			template.KeyUsage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			template.KeyUsage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
	}
	return template
}
