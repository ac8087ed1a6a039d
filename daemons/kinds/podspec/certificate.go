package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// Permitted lifetimes of pod certificates in seconds.
const (
	MinCertificateSeconds     = 3600
	maxCertificateSeconds     = 91 * 86400
	DefaultCertificateSeconds = 86400
)

// validatePodCertificate checks a source of a projected volume.
func validatePodCertificate(p *corev1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := validate.SignerName(p.SignerName, at.Child("signerName"))
	if !slices.Contains(podKeyTypes, p.KeyType) {
		errs = append(errs, validate.NotSupported(at.Child("keyType"), p.KeyType, podKeyTypes))
	}
	if seconds := p.MaxExpirationSeconds; seconds != nil {
		longest := MaxCertificateSeconds(p.SignerName)
		if *seconds < MinCertificateSeconds {
			errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), *seconds,
				fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", MinCertificateSeconds)))
		} else if *seconds > longest {
			errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), *seconds,
				fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", longest)))
		}
	}
	paths := 0
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", p.CredentialBundlePath}, {"keyPath", p.KeyPath},
		{"certificateChainPath", p.CertificateChainPath},
	} {
		if f.path != "" {
			paths++
			errs = append(errs, validate.ProjectedPath(f.path, at.Child(f.name))...)
		}
	}
	if paths == 0 {
		errs = append(errs,
			field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return append(errs, ValidateUserAnnotations(p.UserAnnotations, at.Child("userAnnotations"))...)
}

// MaxCertificateSeconds returns the maximum lifetime of a signer's certificates in seconds.
func MaxCertificateSeconds(signer string) int32 {
	if strings.HasPrefix(signer, "kubernetes.io/") {
		return DefaultCertificateSeconds
	}
	return maxCertificateSeconds
}

// ValidateUserAnnotations checks the annotations for a signer: each key must have a domain.
func ValidateUserAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		at := path.Key(key)
		if !strings.Contains(key, "/") {
			errs = append(errs, field.Invalid(at, key, "must be domain-prefixed"))
		}
		errs = append(errs, validate.Invalid(at, key, validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// podKeyTypes lists the types of keys that a kubelet can generate for a pod.
var podKeyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

// validateTrustProjection checks which bundles a volume requests: one by name, or those of a signer.
func validateTrustProjection(p *corev1.ClusterTrustBundleProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != nil && p.SignerName != nil:
		errs = append(errs, field.Invalid(at, p, "only one of name and signerName may be used"))
	case p.Name != nil:
		if *p.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must be a valid object name"))
		} else {
			for _, message := range TrustBundleNameErrors(*p.Name, false) {
				errs = append(errs,
					field.Invalid(at.Child("name"), *p.Name, "not a valid clustertrustbundlename: "+message))
			}
		}
		if p.LabelSelector != nil {
			errs = append(errs, field.Invalid(at.Child("labelSelector"), p.LabelSelector,
				"labelSelector must be unset if name is specified"))
		}
	case p.SignerName != nil:
		errs = append(errs, validate.SignerName(*p.SignerName, at.Child("signerName"))...)
		errs = append(errs, metavalidation.ValidateLabelSelector(p.LabelSelector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	if p.Path == "" {
		return append(errs, field.Required(at.Child("path"), ""))
	}
	return append(errs, validate.ProjectedPath(p.Path, at.Child("path"))...)
}

func TrustBundleNameErrors(name string, prefix bool) []string {
	signer, rest, found := cutLast(name, ":")
	if !found {
		return validate.DNSSubdomainNameErrors(name, prefix)
	}
	var errs []string
	for part := range strings.SplitSeq(signer, ":") {
		errs = append(errs, validate.DNSSubdomainNameErrors(part, false)...)
	}
	return append(errs, validate.DNSSubdomainNameErrors(rest, prefix)...)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
