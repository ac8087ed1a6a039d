package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/certs"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func newRequest(
	t *testing.T,
	signer string,
	template x509.CertificateRequest,
	usages ...certificatesv1.KeyUsage,
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(began)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Usages: usages,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: "True", Reason: "Test",
				LastUpdateTime: metav1.NewTime(began)}},
		},
	}
}

var began = time.Unix(1_700_000_000, 0)

// newTestSigner returns a controller with a CA, and a client with a stored request.
func newTestSigner(
	t *testing.T,
	r *certificatesv1.CertificateSigningRequest,
	longest time.Duration,
) (*controller, *fake.Clientset) {
	t.Helper()
	ca, err := certs.NewCA("ca", 20*certs.LeafLifetime, began)
	if err != nil {
		t.Fatal(err)
	}
	cfg, dir := config.DefaultControllerManager(), t.TempDir()
	cfg.ClusterSigningCertFile, cfg.ClusterSigningKeyFile, cfg.ClusterSigningDuration = dir+"/ca.crt", dir+"/ca.key",
		longest
	if err := errors.Join(os.WriteFile(dir+"/ca.crt", ca.Cert, 0o600),
		os.WriteFile(dir+"/ca.key", ca.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(r)
	factory := informers.New(client)
	s, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler), Config: cfg,
		Clock: clocktesting.NewFakeClock(began)}).(*controller)
	if !ok {
		t.Fatal("it is another controller")
	}
	if err := informers.CertificateSigningRequests(factory).Informer().GetIndexer().Add(r); err != nil {
		t.Fatal(err)
	}
	return s, client
}

func getRequest(t *testing.T, client *fake.Clientset, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	r, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// signCertificate returns an approved request after a sync.
func signCertificate(
	t *testing.T,
	r *certificatesv1.CertificateSigningRequest,
	longest time.Duration,
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	s, client := newTestSigner(t, r, longest)
	if err := s.sync(t.Context(), r.Name); err != nil {
		t.Fatal(err)
	}
	return getRequest(t, client, r.Name)
}

//style:long a table of requests to each signer
func TestSignersRejectRequestsForOtherPurposes(t *testing.T) {
	const signature, encipher = certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment
	const client, server = certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth
	const clients, kubelets, servers = certificatesv1.KubeAPIServerClientSignerName,
		certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	person := x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice", Organization: []string{"dev"}}}
	node := x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
	}
	with := func(r x509.CertificateRequest, change func(*x509.CertificateRequest)) x509.CertificateRequest {
		change(&r)
		return r
	}
	dns := func(r *x509.CertificateRequest) { r.DNSNames = []string{"n1"} }
	ip := func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{10, 0, 0, 1}} }
	mail := func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"n1@example.com"} }
	uri := func(r *x509.CertificateRequest) {
		r.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/n1"}}
	}
	serving := with(node, dns)
	all := func(r *x509.CertificateRequest) { dns(r); ip(r); mail(r); uri(r) }
	const clientUsages = "usages did not match [client auth digital signature key encipherment]"
	const serverUsages = "usages did not match [digital signature key encipherment server auth]"
	type usages = []certificatesv1.KeyUsage
	for name, c := range map[string]struct {
		signer    string
		requested x509.CertificateRequest
		usages    usages
		refused   string
	}{
		"a person":                            {clients, person, usages{client}, ""},
		"a person with all alternative names": {clients, with(person, all), usages{client, signature, encipher}, ""},
		"a server's usage from the clients' signer": {clients, person, usages{client, server}, "invalid usage for " +
			"client certificate: server auth"},
		"a person for whatever": {clients, person, usages{signature}, "missing required usage " +
			"for client certificate: client auth"},
		"a node":                    {kubelets, node, usages{client, signature}, ""},
		"a node with a key of RSA":  {kubelets, node, usages{encipher, client, signature}, ""},
		"a node that does not sign": {kubelets, node, usages{client, encipher}, clientUsages},
		"a node as a server": {kubelets, node, usages{client, signature, server},
			clientUsages},
		"a person as a node": {kubelets, person, usages{client, signature},
			"subject organization is not system:nodes"},
		"a node of more than one group": {kubelets,
			with(node, func(r *x509.CertificateRequest) {
				r.Subject.Organization = []string{"system:nodes",
					"system:masters"}
			}), usages{client, signature}, "subject organization is not system:nodes"},
		"a node of another name": {kubelets,
			with(node, func(r *x509.CertificateRequest) { r.Subject.CommonName = "n1" }), usages{client, signature},
			"subject common name does not begin with system:node:"},
		"a node with a DNS name": {kubelets, with(node, dns), usages{client, signature},
			"DNS subjectAltNames are not allowed"},
		"a node with an address": {kubelets, with(node, ip), usages{client, signature},
			"IP subjectAltNames are not allowed"},
		"a node with a mail address": {kubelets, with(node, mail), usages{client, signature},
			"Email subjectAltNames are not allowed"},
		"a node with a URI": {kubelets, with(node, uri), usages{client, signature},
			"URI subjectAltNames are not allowed"},
		"a node's server":                {servers, serving, usages{server, signature, encipher}, ""},
		"a node's server by its address": {servers, with(node, ip), usages{server, signature}, ""},
		"a node's server for whatever":   {servers, serving, usages{signature}, serverUsages},
		"a node's server that is a client": {servers, serving, usages{server, signature, client},
			serverUsages},
		"a node's server with a mail address": {servers, with(serving, mail), usages{server, signature},
			"Email subjectAltNames are not allowed"},
		"a node's server with a URI": {servers, with(serving, uri), usages{server, signature},
			"URI subjectAltNames are not allowed"},
		"a node's server without a name": {servers, node, usages{server, signature},
			"DNS or IP subjectAltName is required"},
		"a person's server": {servers, with(person, dns), usages{server, signature},
			"subject organization is not system:nodes"},
		"a server of the nodes' group of another name": {servers,
			with(serving, func(r *x509.CertificateRequest) { r.Subject.CommonName = "n1" }), usages{server, signature},
			"subject common name does not begin with system:node:"},
	} {
		got := signCertificate(t, newRequest(t, c.signer, c.requested, c.usages...), time.Hour)
		if c.refused != "" {
			checkRefused(t, name, got, c.refused)
			continue
		}
		checkIssued(t, name, got, c.requested, c.usages)
	}
}

// checkIssued checks that a certificate has the names and the key usages of its request.
func checkIssued(t *testing.T, name string, got *certificatesv1.CertificateSigningRequest,
	requested x509.CertificateRequest,
	usages []certificatesv1.KeyUsage) {
	cert, err := certs.ParseCert(got.Status.Certificate)
	if err != nil {
		t.Errorf("%s: %v: %+v", name, err, got.Status.Conditions)
		return
	}
	if cert.Subject.String() != requested.Subject.String() || !slices.Equal(cert.DNSNames, requested.DNSNames) ||
		fmt.Sprint(cert.IPAddresses) != fmt.Sprint(requested.IPAddresses) ||
		!slices.Equal(cert.EmailAddresses, requested.EmailAddresses) ||
		fmt.Sprint(cert.URIs) != fmt.Sprint(requested.URIs) ||
		cert.IsCA {
		t.Errorf("%s: the certificate is of %s for %v %v %v %v", name, cert.Subject, cert.DNSNames,
			cert.IPAddresses, cert.EmailAddresses, cert.URIs)
	}
	if got := cert.KeyUsage&x509.KeyUsageKeyEncipherment != 0; got != slices.Contains(usages,
		certificatesv1.UsageKeyEncipherment) {
		t.Errorf("%s: may encipher keys: %v", name, got)
	}
	if got := cert.KeyUsage&x509.KeyUsageDigitalSignature != 0; got != slices.Contains(usages,
		certificatesv1.UsageDigitalSignature) {
		t.Errorf("%s: may sign: %v", name, got)
	}
}

// checkRefused checks that a request has failed for a reason.
func checkRefused(t *testing.T, name string, got *certificatesv1.CertificateSigningRequest, reason string) {
	want := []certificatesv1.CertificateSigningRequestCondition{
		{
			Type:    certificatesv1.CertificateFailed,
			Status:  "True",
			Reason:  "SignerValidationFailure",
			Message: reason,
		},
	}
	before := got.Status.Conditions[1:]
	for i := range before {
		before[i].LastUpdateTime, before[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	if !reflect.DeepEqual(before, want) || len(got.Status.Certificate) > 0 {
		t.Errorf("%s: %+v, want %+v", name, before, want)
	}
}

func TestCertificatesKeepTheCompleteSubject(t *testing.T) {
	subject := pkix.Name{
		CommonName:         "alice",
		Organization:       []string{"dev", "ops"},
		OrganizationalUnit: []string{"unit"},
		Country:            []string{"CH"},
		Locality:           []string{"Bern"},
	}
	got := signCertificate(t, newRequest(t, certificatesv1.KubeAPIServerClientSignerName,
		x509.CertificateRequest{Subject: subject}, certificatesv1.UsageClientAuth), time.Hour)
	cert, err := certs.ParseCert(got.Status.Certificate)
	if err != nil || cert.Subject.String() != subject.String() {
		t.Errorf("%v, %v; want %s", cert, err, subject)
	}
}

// The requester has not proven ownership of the key. As with all requests that cannot be signed, the request stays
// unchanged and is tried again.
func TestRequestsWithAnInvalidSignatureAreNotSigned(t *testing.T) {
	r := newRequest(t, certificatesv1.KubeAPIServerClientSignerName,
		x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice"}}, certificatesv1.UsageClientAuth)
	block, _ := pem.Decode(r.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	r.Spec.Request = pem.EncodeToMemory(block)
	s, client := newTestSigner(t, r, time.Hour)
	if err := s.sync(t.Context(), r.Name); err == nil ||
		!strings.Contains(err.Error(), "check the signature of request") {
		t.Errorf("it says %v", err)
	}
	if got := getRequest(t, client, r.Name); len(got.Status.Certificate) > 0 || len(got.Status.Conditions) != 1 {
		t.Errorf("%+v", got.Status)
	}
}

// Proves S21.
func TestOldRequestsAreDeleted(t *testing.T) {
	made := time.Unix(1000, 0)
	pending := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)},
	}
	if got := Expiry(pending); !got.Equal(made.Add(pendingLifetime)) {
		t.Errorf("pending: %v", got)
	}
	decided := pending.DeepCopy()
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{LastUpdateTime: metav1.NewTime(made.Add(time.Minute))},
	}
	if got := Expiry(decided); !got.Equal(made.Add(time.Minute + decidedLifetime)) {
		t.Errorf("decided: %v", got)
	}
}

func TestCertificateLifetimes(t *testing.T) {
	person := x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice", Organization: []string{"dev"}}}
	for _, c := range []struct{ requests, longest, want time.Duration }{
		{0, 0, certs.LeafLifetime - 5*time.Minute},
		{0, time.Hour, time.Hour},
		{0, 8 * time.Hour, 8*time.Hour - 5*time.Minute},
		{2 * time.Hour, time.Hour, time.Hour},
		{20 * time.Minute, time.Hour, 20 * time.Minute},
		{time.Minute, time.Hour, 10 * time.Minute},
		{12 * time.Hour, 24 * time.Hour, 12*time.Hour - 5*time.Minute},
	} {
		r := newRequest(t, certificatesv1.KubeAPIServerClientSignerName, person, certificatesv1.UsageClientAuth)
		if c.requests > 0 {
			seconds := int32(c.requests / time.Second)
			r.Spec.ExpirationSeconds = &seconds
		}
		cert, err := certs.ParseCert(signCertificate(t, r, c.longest).Status.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if got := cert.NotAfter.Sub(began); got != c.want || !cert.NotBefore.Equal(began.Add(-5*time.Minute)) {
			t.Errorf("asked for %s, at most %s: from %s for %s, want %s", c.requests, c.longest,
				cert.NotBefore.Sub(began),
				got, c.want)
		}
	}
}

func TestRequestLifetimes(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	conditionsOf := func(kinds ...certificatesv1.RequestConditionType) (
		list []certificatesv1.CertificateSigningRequestCondition) {
		for i, kind := range kinds {
			list = append(
				list,
				certificatesv1.CertificateSigningRequestCondition{
					Type:           kind,
					Status:         "True",
					LastUpdateTime: metav1.NewTime(made.Add(time.Duration(i+1) * time.Minute)),
				},
			)
		}
		return list
	}
	ca, err := certs.NewCA("ca", 10*time.Minute, made)
	if err != nil {
		t.Fatal(err)
	}
	short, err := certs.ParseCert(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		conditions []certificatesv1.CertificateSigningRequestCondition
		cert       []byte
		want       time.Time
	}{
		"pending": {nil, nil, made.Add(24 * time.Hour)},
		"approved": {conditionsOf(certificatesv1.CertificateApproved), nil,
			made.Add(time.Hour + time.Minute)},
		"denied": {conditionsOf(certificatesv1.CertificateDenied), nil,
			made.Add(time.Hour + time.Minute)},
		"failed": {conditionsOf(certificatesv1.CertificateApproved,
			certificatesv1.CertificateFailed), nil, made.Add(time.Hour + 2*time.Minute)},
		"its certificate ends before": {conditionsOf(certificatesv1.CertificateApproved), ca.Cert, short.NotAfter},
		"its certificate is none that is known": {conditionsOf(certificatesv1.CertificateApproved), []byte("text"),
			made.Add(time.Hour + time.Minute)},
	} {
		r := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)},
		}
		r.Status.Conditions, r.Status.Certificate = c.conditions, c.cert
		if got := Expiry(r); !got.Equal(c.want) {
			t.Errorf("%s: until %s, want %s", name, got, c.want)
		}
	}
}
