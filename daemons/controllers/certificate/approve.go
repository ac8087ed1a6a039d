package certificate

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// approver approves what kubelets ask for themselves: their first client certificate, with a bootstrap token, and each next one. Who may is
// said by RBAC on the subresources nodeclient and selfnodeclient. Serving certificates are approved by people: what addresses a
// machine has, it alone would say.
type approver struct {
	loop.Context
	loop.Loop
	requests certificateslisters.CertificateSigningRequestLister
}

// NewApprover returns that controller.
func NewApprover(c loop.Context) loop.Controller {
	requests := informers.CertificateSigningRequests(c.Informers)
	a := &approver{Context: c, requests: requests.Lister()}
	a.Loop = loop.Loop{Name: "certificate-approval", Context: c, Sync: a.sync, Synced: []cache.InformerSynced{requests.Informer().HasSynced}}
	c.OnChange(requests.Informer(), func(_, obj any) {
		if obj != nil {
			a.Add(obj)
		}
	})
	return a
}

func (a *approver) sync(ctx context.Context, name string) error {
	request, err := a.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if len(request.Status.Certificate) > 0 || has(request, certificatesv1.CertificateApproved) || has(request, certificatesv1.CertificateDenied) {
		return nil
	}
	asked, err := parse(request)
	if err != nil {
		return err
	}
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || refusal(request, asked) != nil {
		return nil // somebody else's to judge
	}
	for _, rule := range rules(request.Spec.Username, asked.Subject.CommonName) {
		allowed, err := a.allowed(ctx, request, rule.subresource)
		if err != nil {
			return err
		}
		if !allowed {
			continue
		}
		approved := request.DeepCopy()
		approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: rule.message})
		_, err = a.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, name, approved, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return fmt.Errorf("%s asks for a node's certificate and may not: neither nodeclient nor selfnodeclient of certificatesigningrequests is granted", request.Spec.Username)
}

// rule is what somebody needs who asks for a node's certificate.
type rule struct{ subresource, message string }

// rules are those by which a node's certificate may be approved, in order: one's own anew, and any node's.
func rules(username, name string) (list []rule) {
	if name == username {
		list = append(list, rule{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."})
	}
	return append(list, rule{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."})
}

func (a *approver) allowed(ctx context.Context, request *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range request.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := a.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: request.Spec.Username, UID: request.Spec.UID, Groups: request.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Verb: "create", Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review whether %s may have a node's certificate: %w", request.Spec.Username, err)
	}
	return review.Status.Allowed, nil
}
