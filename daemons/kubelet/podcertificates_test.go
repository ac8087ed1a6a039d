package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"

	"clusterctl/daemons/kubelet/volume"
	"clusterctl/kube/kubernetes/fake"
)

// fakeSigner responds to certificate requests when they are created.
type fakeSigner struct {
	t        *testing.T
	key      *ecdsa.PrivateKey
	now      time.Time
	answer   func(s *fakeSigner, r *certificatesv1.PodCertificateRequest) // nil leaves requests without a response
	requests []*certificatesv1.PodCertificateRequest
}

func newFakeSigner(t *testing.T, client *fake.Clientset) *fakeSigner {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSigner{t: t, key: key, now: time.Now().Truncate(time.Second)}
	client.PrependReactor("create", "podcertificaterequests", func(a k8stesting.Action) (bool, runtime.Object, error) {
		r := a.(k8stesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		r.Name = r.GenerateName + string(rune('a'+len(s.requests)))
		s.requests = append(s.requests, r.DeepCopy())
		if s.answer != nil {
			s.answer(s, r)
		}
		return false, nil, nil
	})
	// The fake client ignores field selectors.
	client.PrependWatchReactor("podcertificaterequests", func(a k8stesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			r, ok := e.Object.(*certificatesv1.PodCertificateRequest)
			of := a.(k8stesting.WatchAction).GetWatchRestrictions().Fields
			return e, ok && of.Matches(fields.Set{"metadata.name": r.Name, "spec.nodeName": string(r.Spec.NodeName)})
		}), nil
	})
	return s
}

// issue issues a certificate for the key of a request, or for another key.
func (s *fakeSigner) issue(r *certificatesv1.PodCertificateRequest, public any) {
	s.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(len(s.requests))), NotBefore: s.now,
		NotAfter: s.now.Add(2 * time.Hour)}
	if public == nil {
		stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil {
			s.t.Fatal(err)
		}
		public = stub.PublicKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"about": "this"},
		Bytes: der})
	at := func(d time.Duration) *metav1.Time { t := metav1.NewTime(s.now.Add(d)); return &t }
	r.Status = certificatesv1.PodCertificateRequestStatus{CertificateChain: "the leaf\n" + string(block) + "the end\n",
		NotBefore: at(0), BeginRefreshAt: at(time.Hour), NotAfter: at(2 * time.Hour),
		Conditions: []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued,
			Status: metav1.ConditionTrue}}}
}

func denyAs(kind string) func(*fakeSigner, *certificatesv1.PodCertificateRequest) {
	return func(_ *fakeSigner, r *certificatesv1.PodCertificateRequest) {
		r.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue,
			Reason: "UnsupportedKeyType", Message: "use ED25519"}}
	}
}

func issueAll(s *fakeSigner, r *certificatesv1.PodCertificateRequest) { s.issue(r, nil) }

// newCertificatePod returns a pod with a certificate source, and a function that gets the certificate.
func newCertificatePod(t *testing.T) (*fakeSigner, *podCertificates, func() (volume.KeyPair, time.Time, error)) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot",
		UID: "account-1"}}
	client := fake.NewClientset(account)
	s := newFakeSigner(t, client)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}}
	o := newObjectCache(client, slog.New(slog.DiscardHandler), "n1", func() *corev1.Node { return node },
		func(types.UID) {})
	c := o.certificates
	c.now = func() time.Time { return s.now }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	p := simplePod("web")
	p.Spec.ServiceAccountName = "robot"
	seconds := int32(7200)
	want := &corev1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ECDSAP256",
		MaxExpirationSeconds: &seconds, UserAnnotations: map[string]string{"example.com/a": "b"}}
	return s, c, func() (volume.KeyPair,
		time.Time, error) {
		return c.Get(withPod(t.Context(), p.UID), p, "v", 0, want)
	}
}

func TestAPodGetsACertificateFromItsSigner(t *testing.T) {
	s, c, get := newCertificatePod(t)
	s.answer = issueAll
	pair, again, err := get()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Chain, pair.Key); err != nil || strings.Contains(string(pair.Chain), "about") ||
		!strings.HasPrefix(string(pair.Key), "-----BEGIN PRIVATE KEY-----") {
		t.Errorf("the key and certificate are %s%s: %v", pair.Key, pair.Chain, err)
	}
	if again.Before(s.now.Add(time.Hour)) || again.After(s.now.Add(time.Hour+maxJitter)) {
		t.Errorf("it is renewed %s after it was issued", again.Sub(s.now))
	}
	spec := s.requests[0].Spec
	if spec.PodName != "web" || spec.PodUID != "uid-web" || spec.ServiceAccountName != "robot" ||
		spec.ServiceAccountUID != "account-1" || spec.NodeName != "n1" ||
		spec.NodeUID != "node-1" || *spec.MaxExpirationSeconds != 7200 ||
		spec.UnverifiedUserAnnotations["example.com/a"] != "b" {
		t.Errorf("the request is %+v", spec)
	}
	if second, _, err := get(); err != nil || string(second.Key) != string(pair.Key) || len(s.requests) != 1 {
		t.Errorf("asked %d times, %v", len(s.requests), err)
	}
	c.removePod("uid-web")
	if len(c.certificates) > 0 {
		t.Error("the key outlives its pod")
	}
}

func TestACertificateIsUsedUntilItIsRenewed(t *testing.T) {
	s, _, get := newCertificatePod(t)
	s.answer = issueAll
	first, again, err := get()
	if err != nil {
		t.Fatal(err)
	}
	s.now = again
	s.answer = denyAs(certificatesv1.PodCertificateRequestConditionTypeFailed)
	if pair, next, err := get(); err != nil || string(pair.Key) != string(first.Key) || !next.After(s.now) ||
		len(s.requests) != 2 {
		t.Errorf("before a new certificate is issued: same key %t, %d requests, %v",
			string(pair.Key) == string(first.Key), len(s.requests), err)
	}
	s.answer = issueAll
	if _, _, err := get(); err != nil || len(s.requests) != 2 {
		t.Errorf("a refused renewal is asked for at once again: %d requests, %v", len(s.requests), err)
	}
	s.now = s.now.Add(deniedRetryDelay)
	pair, next, err := get()
	if err != nil || string(pair.Key) == string(first.Key) || next.Before(s.now.Add(time.Hour)) {
		t.Errorf("the renewed key is the same: %t, renewed again in %s, %v", string(pair.Key) == string(first.Key),
			next.Sub(s.now), err)
	}
}

func TestAPodWaitsForItsCertificate(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		answer   func(*fakeSigner, *certificatesv1.PodCertificateRequest)
		fails    string
		later    time.Duration // when to look again
		requests int           // number of requests at that time
	}{
		"not answered":   {nil, "waiting for signer example.com/s", time.Minute, 1},
		"never answered": {nil, "waiting for signer example.com/s", requestTimeout + time.Second, 1},
		"denied": {denyAs(certificatesv1.PodCertificateRequestConditionTypeDenied),
			"is Denied: UnsupportedKeyType: use ED25519", time.Hour, 1},
		"failed": {denyAs(certificatesv1.PodCertificateRequestConditionTypeFailed), "is Failed",
			time.Hour, 1},
		"of another's key": {func(s *fakeSigner,
			r *certificatesv1.PodCertificateRequest) {
			s.issue(r, other.Public())
		},
			"is of another key", time.Hour, 1},
	} {
		s, _, get := newCertificatePod(t)
		s.answer = row.answer
		if _, _, err := get(); err == nil || !strings.Contains(err.Error(), row.fails) {
			t.Errorf("%s: %v", name, err)
		}
		s.now = s.now.Add(row.later)
		if _, _, err := get(); err == nil {
			t.Errorf("%s: there is a certificate later", name)
		}
		if len(s.requests) != row.requests {
			t.Errorf("%s: %d requests", name, len(s.requests))
		}
		if name == "never answered" {
			s.answer = issueAll
			if _, _, err := get(); err != nil || len(s.requests) != 2 {
				t.Errorf("a request that was never answered is not repeated: %d requests, %v", len(s.requests), err)
			}
		}
	}
}

func TestKeysHaveTheRequestedType(t *testing.T) {
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		key, err := newKey(kind)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if _, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := newKey("DSA"); err == nil {
		t.Error("a key of an unknown type was made")
	}
}

// The pod starts as soon as its certificate is issued, without waiting for the next attempt.
func TestAPodStartsWhenItsCertificateIsIssued(t *testing.T) {
	n := newNode(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot",
		UID: "account-1"}})
	s := newFakeSigner(t, n.client)
	requested := make(chan string, 10)
	s.answer = func(_ *fakeSigner, r *certificatesv1.PodCertificateRequest) { requested <- r.Name }
	n.start()
	p := simplePod("web")
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Volumes = []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ED25519",
				CredentialBundlePath: "all.pem"}}}}}}}
	n.create(p)
	var name string
	select {
	case name = <-requested:
	case <-t.Context().Done():
		t.Fatal(errors.New("no certificate was requested"))
	}
	n.until("the pod to say what it waits for", n.hasEvent("FailedMount", "waiting for signer example.com/s"))
	requests := n.client.CertificatesV1().PodCertificateRequests("default")
	r, err := requests.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.issue(r, nil)
	if _, err := requests.UpdateStatus(t.Context(), r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
}
