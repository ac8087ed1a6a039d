// Package certificate signs approved certificate requests of the signers that Kubernetes reserves for client
// certificates and kubelets. It also deletes old requests. RBAC decides who may approve.
package certificate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/certs"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// How long requests are retained, as upstream does.
const (
	pendingLifetime = 24 * time.Hour
	decidedLifetime = time.Hour
)

type controller struct {
	loop.Context
	loop.Loop
	requests certificateslisters.CertificateSigningRequestLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	requests := informers.CertificateSigningRequests(c.Informers)
	s := &controller{Context: c, requests: requests.Lister()}
	s.Loop = loop.Loop{
		Name:    "certificate",
		Context: c,
		Sync:    s.sync,
		Synced:  []cache.InformerSynced{requests.Informer().HasSynced},
	}
	c.OnChange(requests.Informer(), func(_, obj any) {
		if obj != nil {
			s.Add(obj)
		}
	})
	return s
}

func (s *controller) sync(ctx context.Context, name string) error {
	request, err := s.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if left := Expiry(request).Sub(s.Now()); left > 0 {
		s.AddAfter(name, left)
	} else {
		err := s.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, loop.IfUnchanged(request))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if !hasCondition(request, certificatesv1.CertificateApproved) ||
		hasCondition(request, certificatesv1.CertificateDenied) ||
		hasCondition(
			request,
			certificatesv1.CertificateFailed,
		) || len(request.Status.Certificate) > 0 || signers[request.Spec.SignerName] == nil {
		return nil
	}
	updated := request.DeepCopy()
	if cert, refused, err := s.sign(request); refused != nil {
		updated.Status.Conditions = append(updated.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure",
			Message: refused.Error(), LastUpdateTime: metav1.NewTime(s.Now()),
			LastTransitionTime: metav1.NewTime(s.Now())})
	} else if err != nil {
		return err
	} else {
		updated.Status.Certificate = cert
	}
	if _, err := s.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the certificate of request %s: %w", name, err)
	}
	return nil
}

// sign returns the certificate, or refused if the signer does not grant the request.
func (s *controller) sign(request *certificatesv1.CertificateSigningRequest) (cert []byte, refused, err error) {
	if s.Config.ClusterSigningCertFile == "" {
		return nil, nil, errors.New("no signing CA is configured (--cluster-signing-cert-file)")
	}
	var ca certs.Pair
	if ca.Cert, err = os.ReadFile(s.Config.ClusterSigningCertFile); err != nil {
		return nil, nil, fmt.Errorf("read the signing CA: %w", err)
	}
	if ca.Key, err = os.ReadFile(s.Config.ClusterSigningKeyFile); err != nil {
		return nil, nil, fmt.Errorf("read the signing CA's key: %w", err)
	}
	requested, err := parseRequest(request)
	if err != nil {
		return nil, nil, err
	}
	if refused := checkRequest(request, requested); refused != nil {
		return nil, refused, nil
	}
	if err := requested.CheckSignature(); err != nil {
		return nil, nil, fmt.Errorf("check the signature of request %s: %w", request.Name, err)
	}
	der, err := certs.SignLeaf(ca, newCertificate(request, requested, s.Config.ClusterSigningDuration, s.Now()),
		requested.PublicKey, s.Now())
	if err != nil {
		return nil, nil, err
	}
	return certs.EncodeCert(der), nil, nil
}

// Expiry returns when a request is deleted.
func Expiry(request *certificatesv1.CertificateSigningRequest) time.Time {
	decided := time.Time{}
	for _, c := range request.Status.Conditions {
		if c.LastUpdateTime.After(decided) {
			decided = c.LastUpdateTime.Time
		}
	}
	due := decided.Add(decidedLifetime)
	if decided.IsZero() {
		due = request.CreationTimestamp.Add(pendingLifetime)
	}
	if cert, err := certs.ParseCert(request.Status.Certificate); err == nil && cert.NotAfter.Before(due) {
		return cert.NotAfter // an expired certificate is useless
	}
	return due
}

func hasCondition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(
		request.Status.Conditions,
		func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		},
	)
}
