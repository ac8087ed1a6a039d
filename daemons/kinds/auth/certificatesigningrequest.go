package auth

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func CertificateSigningRequests() *kind.Kind {
	return &kind.Kind{
		GVK:      certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		Resource: "certificatesigningrequests", Singular: "certificatesigningrequest", ShortNames: []string{"csr"},
		NameErrors: validate.PathSegmentNameErrors,
		New:        kind.New[certificatesv1.CertificateSigningRequest](),
		NewList:    kind.New[certificatesv1.CertificateSigningRequestList](),
		// Admission fills in the requester, which it knows.
		PrepareCreate: kind.Adapt(func(c *certificatesv1.CertificateSigningRequest) {
			c.Status = certificatesv1.CertificateSigningRequestStatus{}
		}),
		// A request never changes: it is only approved, denied or signed.
		PrepareUpdate: kind.AdaptUpdate(
			func(c, old *certificatesv1.CertificateSigningRequest) { c.Spec, c.Status = old.Spec, old.Status },
		),
		Validate: kind.AdaptValidate(validateSigningRequest),
		Fields: kind.AdaptFields(func(c *certificatesv1.CertificateSigningRequest) fields.Set {
			return fields.Set{"spec.signerName": c.Spec.SignerName}
		}),
		Columns: kind.NewColumns("Age", "SignerName", "Requestor", "RequestedDuration", "Condition"),
		Row:     kind.AdaptRow(signingRequestRow),
		// Conditions for approval and denial are set only through the approval subresource, and the certificate only
		// through status. Admission enforces that.
		Status: &kind.Status{Copy: kind.AdaptUpdate(copyRequestStatus),
			Validate: kind.AdaptValidateUpdate(validateRequestStatus)},
		Subresources: []string{"approval"},
	}
}

// copyRequestStatus copies the status and fills in missing times of conditions.
func copyRequestStatus(to, from *certificatesv1.CertificateSigningRequest) {
	before := to.Status.Conditions
	to.Status = *from.Status.DeepCopy()
	at := metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	for i := range to.Status.Conditions {
		c := &to.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = at
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = at
		for _, old := range before {
			if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
}

func signingRequestRow(c *certificatesv1.CertificateSigningRequest) []any {
	requested := cell.NoneText
	if s := c.Spec.ExpirationSeconds; s != nil {
		requested = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	approved, denied, failed := false, false, false
	for _, cond := range c.Status.Conditions {
		approved = approved || cond.Type == certificatesv1.CertificateApproved
		denied = denied || cond.Type == certificatesv1.CertificateDenied
		failed = failed || cond.Type == certificatesv1.CertificateFailed
	}
	var state string
	switch {
	case denied:
		state = "Denied"
	case approved:
		state = "Approved"
	default:
		state = "Pending"
	}
	if failed {
		state += ",Failed"
	}
	if len(c.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return []any{cell.Age(c.CreationTimestamp), c.Spec.SignerName, c.Spec.Username, requested, state}
}
