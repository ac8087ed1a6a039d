package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// keyUsages lists the usages that a request may contain.
var keyUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign,
	certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny,
	certificatesv1.UsageServerAuth,
	certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageSMIME,
	certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser,
	certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
}

// legacySigner is the signer name from versions before v1, in which a request did not have to name one.
const legacySigner = "kubernetes.io/legacy-unknown"

func validateSigningRequest(c *certificatesv1.CertificateSigningRequest) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	block, _ := pem.Decode(c.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		errs = append(errs, field.Invalid(path.Child("request"), c.Spec.Request,
			"PEM block type must be CERTIFICATE REQUEST"))
	} else if _, err := x509.ParseCertificateRequest(block.Bytes); err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), c.Spec.Request, err.Error()))
	}
	if len(c.Spec.Usages) == 0 {
		errs = append(errs, field.Required(path.Child("usages"), ""))
	}
	again := validate.MarkRepeats(c.Spec.Usages)
	for i, usage := range c.Spec.Usages {
		if !slices.Contains(keyUsages, usage) {
			errs = append(errs, validate.NotSupported(path.Child("usages").Index(i), usage, keyUsages))
		}
		if again[i] {
			errs = append(errs, field.Duplicate(path.Child("usages").Index(i), usage))
		}
	}
	if c.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(path.Child("signerName"), c.Spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validate.SignerName(c.Spec.SignerName, path.Child("signerName"))...)
	}
	if s := c.Spec.ExpirationSeconds; s != nil && *s < 600 {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// finalRequestConditions lists the conditions that cannot be removed from a request.
var finalRequestConditions = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved,
	certificatesv1.CertificateDenied,
	certificatesv1.CertificateFailed,
}

// validateRequestStatus checks the decision about a request. Errors in unchanged parts are ignored, so that other parts
// can be changed.
func validateRequestStatus(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	status := field.NewPath("status")
	var errs field.ErrorList
	if !value.Same(c.Status.Conditions, old.Status.Conditions) {
		errs = validateRequestConditions(c.Status.Conditions, status.Child("conditions"))
	}
	for _, t := range finalRequestConditions {
		if countConditions(c, t) < countConditions(old, t) {
			errs = append(errs, field.Forbidden(status.Child("conditions"), fmt.Sprintf(
				"updates may not remove a condition of type %q", t)))
		}
	}
	if bytes.Equal(c.Status.Certificate, old.Status.Certificate) {
		return errs
	}
	if len(old.Status.Certificate) > 0 {
		errs = append(errs, field.Forbidden(status.Child("certificate"),
			"updates may not modify existing certificate content"))
	}
	if err := checkIssuedCertificate(c.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(status.Child("certificate"), "<certificate data>", err.Error()))
	}
	return errs
}

func countConditions(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) (n int) {
	for _, cond := range c.Status.Conditions {
		if cond.Type == t {
			n++
		}
	}
	return n
}

func validateRequestConditions(list []certificatesv1.CertificateSigningRequestCondition,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range list {
		at := path.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		allowed := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
		if slices.Contains(finalRequestConditions, c.Type) {
			allowed = allowed[:1]
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !slices.Contains(allowed, c.Status):
			errs = append(errs, validate.NotSupported(at.Child("status"), c.Status, allowed))
		}
		if c.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] ||
			c.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type,
				"Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	return errs
}

// checkIssuedCertificate requires PEM blocks of certificates only. Text around the blocks is allowed, since signers
// describe the certificates there.
func checkIssuedCertificate(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	n := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if n == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
