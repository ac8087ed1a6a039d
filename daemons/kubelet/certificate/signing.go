package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"clusterctl/certs"
	"clusterctl/daemons/kubelet/sleep"
	"clusterctl/kube/kubernetes"
)

// certificateRequester requests a certificate from the cluster.
type certificateRequester struct {
	api      kubernetes.Interface
	template x509.CertificateRequest
	signer   string
	usages   []certificatesv1.KeyUsage
	log      *slog.Logger
}

// sign creates a key and a request, and returns them with the certificate once the request is approved and signed.
func (s certificateRequester) sign(ctx context.Context) (certs.Pair, error) {
	text, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return certs.Pair{}, fmt.Errorf("create a key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return certs.Pair{}, fmt.Errorf("create a key: %w", err)
	}
	request, err := certutil.MakeCSRFromTemplate(key, &s.template)
	if err != nil {
		return certs.Pair{}, fmt.Errorf("encode a certificate signing request: %w", err)
	}
	created, err := s.api.CertificatesV1().
		CertificateSigningRequests().
		Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    request,
				SignerName: s.signer,
				Usages:     s.usages,
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return certs.Pair{}, fmt.Errorf("create a certificate signing request: %w", err)
	}
	s.log.Info("waiting for a certificate to be approved and signed", "request", created.Name, "signer", s.signer,
		"subject", s.template.Subject.String())
	cert, err := s.awaitSigned(ctx, created.Name, created.UID)
	if err != nil {
		return certs.Pair{}, fmt.Errorf("wait for certificate signing request %s: %w", created.Name, err)
	}
	return certs.Pair{Cert: cert, Key: text}, nil
}

// awaitSigned returns the certificate of a request once it is signed. It watches again when a watch ends.
func (s certificateRequester) awaitSigned(ctx context.Context, name string, uid types.UID) ([]byte, error) {
	for {
		cert, err := s.watchRequest(ctx, name, uid)
		var final finalError
		if err == nil || errors.As(err, &final) {
			return cert, err
		}
		s.log.Info("cannot watch a certificate signing request: reading it again", "request", name, "reason", err)
		if !sleep.For(ctx, time.Second) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// finalError is the reason why a request will not be signed.
type finalError string

func (e finalError) Error() string { return string(e) }

// errWatchEnded means that a watch has ended, which is normal.
var errWatchEnded = errors.New("the watch has ended")

// watchRequest reads a request, then watches it until it is signed or the watch ends.
func (s certificateRequester) watchRequest(ctx context.Context, name string, uid types.UID) ([]byte, error) {
	requests := s.api.CertificatesV1().CertificateSigningRequests()
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	list, err := requests.List(ctx, only)
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, finalError("it was deleted")
	}
	if cert, err := signedCertificate(&list.Items[0], uid); cert != nil || err != nil {
		return cert, err
	}
	only.ResourceVersion = list.ResourceVersion
	changes, err := requests.Watch(ctx, only)
	if err != nil {
		return nil, err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		request, ok := change.Object.(*certificatesv1.CertificateSigningRequest)
		switch {
		case !ok:
			return nil, errWatchEnded
		case change.Type == watch.Deleted:
			return nil, finalError("it was deleted")
		}
		if cert, err := signedCertificate(request, uid); cert != nil || err != nil {
			return cert, err
		}
	}
	return nil, errWatchEnded
}

// signedCertificate returns the certificate of a request, nil while it is not signed.
func signedCertificate(request *certificatesv1.CertificateSigningRequest, uid types.UID) ([]byte, error) {
	if request.UID != uid {
		return nil, finalError("it was replaced by another with its name")
	}
	approved := false
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return nil, finalError(fmt.Sprintf("it was denied, reason: %s, message: %s", c.Reason, c.Message))
		case certificatesv1.CertificateFailed:
			return nil, finalError(fmt.Sprintf("it failed, reason: %s, message: %s", c.Reason, c.Message))
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(request.Status.Certificate) == 0 {
		return nil, nil
	}
	return request.Status.Certificate, nil
}
