package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
)

// certificate records the requester in certificate signing requests. The plugins below check who may approve and sign.
type certificate struct{}

var certificateRequestsGR = resourceName{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}

// Admit sets the requester, whatever the client sent. Only writes to approval may change decisions, and those cannot
// change the certificate.
func (certificate) Admit(_ context.Context, a *api.Admission) error {
	c, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nil
	}
	old, _ := a.Old.(*certificatesv1.CertificateSigningRequest)
	switch {
	case isOperation(a, "CREATE", certificateRequestsGR):
		c.Spec.Username, c.Spec.UID, c.Spec.Groups, c.Spec.Extra = a.User.Name, a.User.UID, a.User.Groups, nil
		for k, v := range a.User.Extra {
			if c.Spec.Extra == nil {
				c.Spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			c.Spec.Extra[k] = v
		}
	case a.Subresource == "approval" && old != nil:
		c.Status.Certificate = old.Status.Certificate // approving cannot set the certificate
	case a.Subresource == "status" && old != nil:
		keepDecisions(c, old)
	}
	return nil
}

// decisionTypes are the condition types that approve or deny.
var decisionTypes = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved,
	certificatesv1.CertificateDenied,
}

func conditionIndexes(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) (at []int) {
	for i, cond := range c.Status.Conditions {
		if cond.Type == t {
			at = append(at, i)
		}
	}
	return at
}

// keepDecisions restores the old decisions, unless the write adds or removes one.
func keepDecisions(c, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range decisionTypes {
		after, before := conditionIndexes(c, t), conditionIndexes(old, t)
		if len(after) != len(before) {
			continue
		}
		for i := range after {
			c.Status.Conditions[after[i]] = old.Status.Conditions[before[i]]
		}
	}
}

// certificateSubjectRestriction refuses requests for client certificates with the group system:masters.
type certificateSubjectRestriction struct{}

// Validate implements api.Validator.
func (certificateSubjectRestriction) Validate(_ context.Context, a *api.Admission) error {
	c, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || !isOperation(a, "CREATE", certificateRequestsGR) {
		return nil
	}
	if c.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName &&
		requestsOrganization(c.Spec.Request, api.GroupMasters) {
		return forbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", c.Spec.SignerName,
			api.GroupMasters))
	}
	return nil
}

// certificateApproval requires the verb approve on the signer.
type certificateApproval struct{ authorizer api.Authorizer }

// Validate implements api.Validator.
func (p *certificateApproval) Validate(ctx context.Context, a *api.Admission) error {
	c, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Subresource != "approval" {
		return nil
	}
	if !isAllowedOnSigner(ctx, p.authorizer, a, "approve", c.Spec.SignerName) {
		return forbidden(a, fmt.Errorf("user not permitted to approve requests with signerName %q", c.Spec.SignerName))
	}
	return nil
}

// certificateSigning requires the verb sign on the signer.
type certificateSigning struct{ authorizer api.Authorizer }

// Validate implements api.Validator.
func (p *certificateSigning) Validate(ctx context.Context, a *api.Admission) error {
	c, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	old, existed := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Subresource != "status" || !existed || old == nil {
		return nil
	}
	for _, t := range decisionTypes {
		if len(conditionIndexes(c, t)) > len(conditionIndexes(old, t)) {
			return apierrors.NewInvalid(
				certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest").GroupKind(),
				a.Name,
				field.ErrorList{
					field.Forbidden(field.NewPath("status", "conditions"),
						fmt.Sprintf("updates may not add a condition of type %q", t))},
			)
		}
	}
	if equality.Semantic.DeepEqual(c.Status, old.Status) {
		return nil
	}
	if !isAllowedOnSigner(ctx, p.authorizer, a, "sign", c.Spec.SignerName) {
		return forbidden(a, fmt.Errorf("user not permitted to sign requests with signerName %q", c.Spec.SignerName))
	}
	return nil
}

// isAllowedOnSigner reports whether the user has a right on a signer, or on all signers of its domain.
func isAllowedOnSigner(ctx context.Context, authorizer api.Authorizer, a *api.Admission, verb, name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	for _, n := range []string{name, domain + "/*"} {
		d, _, err := authorizer.Authorize(ctx, a.User, api.Request{
			Verb: verb, Resource: true, Name: n,
			GroupVersionResource: schema.GroupVersionResource{
				Group:    certificatesv1.GroupName,
				Version:  "*",
				Resource: "signers",
			},
		})
		if err == nil && d == api.Allow {
			return true
		}
	}
	return false
}

func requestsOrganization(request []byte, organization string) bool {
	block, _ := pem.Decode(request)
	if block == nil {
		return false
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && slices.Contains(csr.Subject.Organization, organization)
}
