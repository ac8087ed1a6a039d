package kubelet

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/volume"
)

// These constants are the durations that govern pod certificates.
const (
	// requestTimeout is how long a request may wait for its signer. Controllers delete older requests.
	requestTimeout = 15 * time.Minute
	// deniedRetryDelay is when the kubelet retries a renewal that was refused. A first request that was refused is not
	// retried.
	deniedRetryDelay = 10 * time.Minute
	// maxJitter is the largest random delay of a renewal. It spreads the renewals of pods that started together.
	maxJitter = 5 * time.Minute
	// requestPollInterval is how long to wait before looking again at a request whose watch has delivered nothing.
	requestPollInterval = time.Minute
)

// podCertificates obtains the certificates of podCertificate sources of projected volumes. Keys and certificates are
// held in memory until their pod ends. A restarted kubelet requests new ones.
type podCertificates struct {
	objects *objectCache
	node    func() *corev1.Node // as last read; nil before the node is registered
	now     func() time.Time

	mu           sync.Mutex
	certificates map[sourceKey]*podCertificate
}

// sourceKey identifies one source of a volume of a pod.
type sourceKey struct {
	pod    types.UID
	volume string
	index  int
}

// podCertificate is the state of one source. Only the pod's worker uses it, one call at a time.
type podCertificate struct {
	current volume.KeyPair
	renewAt time.Time // when to request the next certificate; zero while there is no current one

	request     string // name of the pending request; empty when there is none
	requestedAt time.Time
	key         []byte // private key of the pending request, PEM
	public      crypto.PublicKey

	denial  string    // why the signer refused the last request
	retryAt time.Time // no new request before this time
}

// Get returns the key and certificate of a source, and when to call it again. An error states what the certificate
// waits for.
func (c *podCertificates) Get(ctx context.Context, p *corev1.Pod, name string, index int,
	want *corev1.PodCertificateProjection) (volume.KeyPair, time.Time, error) {
	key := sourceKey{p.UID, name, index}
	c.mu.Lock()
	s := c.certificates[key]
	if s == nil {
		s = &podCertificate{}
		c.certificates[key] = s
	}
	c.mu.Unlock()
	now := c.now()
	hasCertificate := !s.renewAt.IsZero()
	switch {
	case hasCertificate && now.Before(s.renewAt):
		return s.current, s.renewAt, nil
	case !hasCertificate && s.denial != "":
		return volume.KeyPair{}, time.Time{}, errors.New(s.denial)
	}
	err := c.advance(ctx, p, s, want, now)
	if s.renewAt.IsZero() {
		return volume.KeyPair{}, time.Time{}, err
	}
	// The current certificate is used until there is a newer one.
	if now.Before(s.renewAt) {
		return s.current, s.renewAt, nil
	}
	if err != nil {
		c.objects.log.Warn("renew a pod's certificate", "pod", key, "signer", want.SignerName, "error", err)
	}
	return s.current, now.Add(requestPollInterval), nil
}

// advance creates a request if none is pending, and stores the result of the request once there is one.
func (c *podCertificates) advance(ctx context.Context, p *corev1.Pod, s *podCertificate,
	want *corev1.PodCertificateProjection, now time.Time) error {
	if s.request == "" {
		if now.Before(s.retryAt) {
			return errors.New(s.denial)
		}
		if err := c.createRequest(ctx, p, s, want, now); err != nil {
			return err
		}
	}
	r := objectRef{kind: certificateRequests, namespace: p.Namespace, name: s.request}
	request, err := c.objects.certificateRequest(ctx, r)
	switch {
	case apierrors.IsNotFound(err), err == nil && now.Sub(s.requestedAt) > requestTimeout &&
		len(request.Status.Conditions) == 0:
		c.endRequest(p, s, r)
		return fmt.Errorf("request for a certificate of signer %s was not answered: asking again", want.SignerName)
	case err != nil:
		return err
	}
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			err := s.store(request, now)
			if err != nil {
				s.denial, s.retryAt = err.Error(), now.Add(deniedRetryDelay)
			}
			c.endRequest(p, s, r)
			return err
		case certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			s.denial = fmt.Sprintf("signer %s issues no certificate: PodCertificateRequest %s is %s: %s: %s",
				want.SignerName, s.request, condition.Type, condition.Reason, condition.Message)
			s.retryAt = now.Add(deniedRetryDelay)
			c.endRequest(p, s, r)
			return errors.New(s.denial)
		}
	}
	return fmt.Errorf("waiting for signer %s to issue a certificate for PodCertificateRequest %s", want.SignerName,
		s.request)
}

// endRequest ends a request and its watch.
func (c *podCertificates) endRequest(p *corev1.Pod, s *podCertificate, r objectRef) {
	s.request = ""
	c.objects.removeUser(p.UID, r)
}

// createRequest creates a key and a request for a certificate for it.
func (c *podCertificates) createRequest(ctx context.Context, p *corev1.Pod, s *podCertificate,
	want *corev1.PodCertificateProjection, now time.Time) error {
	node := c.node()
	if node == nil || node.UID == "" {
		return errors.New("the node is not registered yet")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	account, err := c.objects.client.CoreV1().ServiceAccounts(p.Namespace).Get(ctx, p.Spec.ServiceAccountName,
		metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the service account of the pod: %w", err)
	}
	key, err := newKey(want.KeyType)
	if err != nil {
		return err
	}
	// The stub has no subject: the signer derives it from what it knows about the pod.
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return fmt.Errorf("make a certificate request: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "req-" + p.Name + "-", Namespace: p.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: want.SignerName, PodName: p.Name, PodUID: p.UID, ServiceAccountName: account.Name,
			ServiceAccountUID: account.UID,
			NodeName:          types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: want.MaxExpirationSeconds,
			StubPKCS10Request:    stub, UnverifiedUserAnnotations: want.UserAnnotations,
		},
	}
	made, err := c.objects.client.CertificatesV1().PodCertificateRequests(p.Namespace).Create(ctx, request,
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a certificate of signer %s: %w", want.SignerName, err)
	}
	s.request, s.requestedAt, s.public = made.Name, now, key.Public()
	s.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return nil
}

// newKey returns a new key of one of the types that the API defines.
func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("key type %q is not supported", kind)
}

// store stores an issued certificate. It returns an error if the certificate is not for the key that was created for
// it. Text and headers in the PEM data are removed.
func (s *podCertificate) store(r *certificatesv1.PodCertificateRequest, now time.Time) error {
	var chain bytes.Buffer
	for block, rest := pem.Decode([]byte(r.Status.CertificateChain)); block != nil; block, rest = pem.Decode(rest) {
		if chain.Len() == 0 {
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return fmt.Errorf("the issued certificate of PodCertificateRequest %s cannot be read: %w", r.Name, err)
			}
			if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok ||
				!public.Equal(s.public) {
				return fmt.Errorf(
					"the issued certificate of PodCertificateRequest %s is of another key than was requested", r.Name)
			}
		}
		if err := pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}); err != nil {
			return err
		}
	}
	if chain.Len() == 0 || r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil {
		return fmt.Errorf("PodCertificateRequest %s is issued and has no certificate", r.Name)
	}
	s.current, s.denial, s.retryAt = volume.KeyPair{Key: s.key, Chain: chain.Bytes()}, "", time.Time{}
	s.renewAt = r.Status.BeginRefreshAt.Time
	if left := min(maxJitter, r.Status.NotAfter.Sub(s.renewAt)/2); left > 0 {
		s.renewAt = s.renewAt.Add(mathrand.N(left))
	}
	if !s.renewAt.After(now) {
		// Do not request again without a pause if the signer's certificates are due at once.
		s.renewAt = now.Add(requestPollInterval)
	}
	return nil
}

// removePod drops the certificates of a pod.
func (c *podCertificates) removePod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.certificates {
		if key.pod == uid {
			delete(c.certificates, key)
		}
	}
}
