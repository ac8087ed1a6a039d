package auth

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func PodCertificateRequests() *kind.Kind {
	return &kind.Kind{
		GVK:      certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"),
		Resource: "podcertificaterequests", Singular: "podcertificaterequest", Namespaced: true,
		ConditionalUpdate: true,
		New:               kind.New[certificatesv1.PodCertificateRequest](),
		NewList:           kind.New[certificatesv1.PodCertificateRequestList](),
		Default: kind.Adapt(func(r *certificatesv1.PodCertificateRequest) {
			value.SetDefault(&r.Spec.MaxExpirationSeconds, podspec.DefaultCertificateSeconds)
		}),
		PrepareCreate: kind.Adapt(func(r *certificatesv1.PodCertificateRequest) {
			r.Status = certificatesv1.PodCertificateRequestStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(r, old *certificatesv1.PodCertificateRequest) { r.Status = old.Status }),
		Validate:      kind.AdaptValidate(validatePodCertificateRequest),
		ValidateUpdate: kind.AdaptValidateUpdate(func(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
			return validate.Immutable(r.Spec, old.Spec, field.NewPath("spec"))
		}),
		Fields: kind.AdaptFields(func(r *certificatesv1.PodCertificateRequest) fields.Set {
			return fields.Set{
				"spec.signerName": r.Spec.SignerName,
				"spec.podName":    r.Spec.PodName,
				"spec.nodeName":   string(r.Spec.NodeName),
			}
		}),
		IndexedFields: []string{"spec.nodeName"},
		Columns:       kind.NewColumns("Pod", "Node", "SignerName", "State", "Age"),
		Row: kind.AdaptRow(func(r *certificatesv1.PodCertificateRequest) []any {
			state := "Pending"
			for _, c := range r.Status.Conditions {
				if slices.Contains(finalPodCertificateConditions, c.Type) {
					state = c.Type
				}
			}
			return []any{r.Spec.PodName, string(r.Spec.NodeName), r.Spec.SignerName, state,
				cell.Age(r.CreationTimestamp)}
		}),
		Status: &kind.Status{
			Copy: kind.AdaptUpdate(
				func(to, from *certificatesv1.PodCertificateRequest) { to.Status = *from.Status.DeepCopy() },
			),
			Validate: kind.AdaptValidateUpdate(validatePodCertificateStatus),
		},
	}
}

// finalPodCertificateConditions lists the final conditions of a request. It has at most one of them, permanently.
var finalPodCertificateConditions = []string{
	certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed,
	certificatesv1.PodCertificateRequestConditionTypeIssued,
}

func validatePodCertificateRequest(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	path, s := field.NewPath("spec"), &r.Spec
	errs := validate.SignerName(s.SignerName, path.Child("signerName"))
	for _, f := range []struct{ name, text string }{{"podName", s.PodName},
		{"serviceAccountName", s.ServiceAccountName}, {"nodeName", string(s.NodeName)}} {
		errs = append(errs, validate.DNSSubdomain(f.text, path.Child(f.name))...)
	}
	for _, f := range []struct{ name, text string }{{"podUID", string(s.PodUID)},
		{"serviceAccountUID", string(s.ServiceAccountUID)}, {"nodeUID", string(s.NodeUID)}} {
		switch {
		case f.text == "":
			errs = append(errs, field.Invalid(path.Child(f.name), f.text, "must not be empty"))
		case len(f.text) > 128:
			errs = append(errs, field.TooLong(path.Child(f.name), f.text, 128))
		}
	}
	longest := podspec.MaxCertificateSeconds(s.SignerName)
	switch seconds := s.MaxExpirationSeconds; {
	case seconds == nil:
		errs = append(errs, field.Required(path.Child("maxExpirationSeconds"), "must be set"))
	case *seconds < podspec.MinCertificateSeconds || *seconds > longest:
		errs = append(errs, field.Invalid(path.Child("maxExpirationSeconds"), *seconds, fmt.Sprintf(
			"must be in the range [%d, %d]", podspec.MinCertificateSeconds, longest)))
	}
	if request, err := x509.ParseCertificateRequest(s.StubPKCS10Request); err != nil {
		errs = append(errs, field.Invalid(path.Child("stubPKCS10Request"), "<value omitted>",
			"must be a valid PKCS#10 request: "+err.Error()))
	} else if err := request.CheckSignature(); err != nil {
		errs = append(errs, field.Invalid(path.Child("stubPKCS10Request"), "<value omitted>", "must be signed by the "+
			"key that it carries: "+err.Error()))
	}
	return append(errs, podspec.ValidateUserAnnotations(s.UnverifiedUserAnnotations,
		path.Child("unverifiedUserAnnotations"))...)
}

func validatePodCertificateStatus(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	path, after, before := field.NewPath("status"), &r.Status, &old.Status
	errs := metavalidation.ValidateConditions(after.Conditions, path.Child("conditions"))
	end := ""
	for i, c := range after.Conditions {
		at := path.Child("conditions").Index(i)
		switch {
		case !slices.Contains(finalPodCertificateConditions, c.Type):
			continue
		case end != "":
			errs = append(errs, field.Invalid(at.Child("type"), c.Type,
				"There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\""))
		}
		end = c.Type
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, validate.NotSupported(at.Child("status"), c.Status,
				[]metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	for _, c := range before.Conditions {
		if slices.Contains(finalPodCertificateConditions, c.Type) && end != c.Type {
			errs = append(errs, field.Invalid(path.Child("conditions"), end,
				"a request that was "+strings.ToLower(c.Type)+" stays so"))
		}
	}
	for _, f := range []struct {
		name          string
		after, before any
		set           bool
	}{
		{"certificateChain", after.CertificateChain, before.CertificateChain, before.CertificateChain != ""},
		{"notBefore", after.NotBefore, before.NotBefore, before.NotBefore != nil},
		{"beginRefreshAt", after.BeginRefreshAt, before.BeginRefreshAt, before.BeginRefreshAt != nil},
		{"notAfter", after.NotAfter, before.NotAfter, before.NotAfter != nil},
	} {
		if f.set {
			errs = append(errs, validate.Immutable(f.after, f.before, path.Child(f.name))...)
		}
	}
	if end != certificatesv1.PodCertificateRequestConditionTypeIssued {
		if after.CertificateChain != "" {
			errs = append(errs, field.Invalid(path.Child("certificateChain"), "<value omitted>",
				"must be empty unless the request is issued"))
		}
		return errs
	}
	return append(errs, validateIssuedChain(after, path)...)
}

// validateIssuedChain requires PEM certificates. The validity of the first one must agree with the status.
func validateIssuedChain(s *certificatesv1.PodCertificateRequestStatus, path *field.Path) field.ErrorList {
	at := path.Child("certificateChain")
	block, rest := pem.Decode([]byte(s.CertificateChain))
	if block == nil || block.Type != "CERTIFICATE" {
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must begin with a certificate in PEM")}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return field.ErrorList{
			field.Invalid(at, "<value omitted>", "the first certificate does not parse as X.509: "+err.Error()),
		}
	}
	var errs field.ErrorList
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			errs = append(errs, field.Invalid(at, "<value omitted>", "must be certificates in PEM"))
		}
	}
	if s.NotBefore == nil || !s.NotBefore.Time.Equal(leaf.NotBefore) {
		errs = append(errs, field.Invalid(path.Child("notBefore"), s.NotBefore,
			"must be set to the NotBefore time of the leaf certificate"))
	}
	if s.NotAfter == nil || !s.NotAfter.Time.Equal(leaf.NotAfter) {
		errs = append(errs, field.Invalid(path.Child("notAfter"), s.NotAfter,
			"must be set to the NotAfter time of the leaf certificate"))
	}
	if refresh := s.BeginRefreshAt; refresh == nil || refresh.Time.Before(leaf.NotBefore) ||
		refresh.Time.After(leaf.NotAfter) {
		errs = append(errs, field.Invalid(path.Child("beginRefreshAt"), refresh,
			"must be set, between notBefore and notAfter"))
	}
	return errs
}
