package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// TestNodeNamesAreApprovedOnce checks which requests for a node's client certificate are approved automatically.
// Proves S12, S21.
//
//style:long a table of requests, with the decision on each
func TestNodeNamesAreApprovedOnce(t *testing.T) {
	token, node := "system:bootstrap:abcdef", "system:node:a"
	existing := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	machines := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: inventory.Name},
		Data:       map[string]string{"declared": `{"roles":["node"],"addresses":["10.0.0.1"]}`},
	}
	broken := machines.DeepCopy()
	broken.Data["other"] = "{"
	for name, c := range map[string]struct {
		user, asks string
		objects    []runtime.Object
		fails      string // a resource that the server cannot read
		approved   bool
		event      string
		err        string
	}{
		"a new node with a token": {user: token, asks: "system:node:b",
			objects: []runtime.Object{existing, machines}, approved: true},
		"a new node without an inventory": {user: token, asks: "system:node:b", approved: true},
		"an existing node with a token": {user: token, asks: node, objects: []runtime.Object{existing},
			event: "node a exists"},
		"an existing node by itself": {user: node, asks: node,
			objects: []runtime.Object{existing, machines}, approved: true},
		"another existing node's certificate": {user: "system:node:b", asks: node,
			objects: []runtime.Object{existing}, event: "node a exists"},
		"a declared machine with a token": {user: token, asks: "system:node:declared",
			objects: []runtime.Object{machines}, event: "machine declared is declared"},
		"a declared machine, broken inventory": {user: token, asks: "system:node:declared",
			objects: []runtime.Object{broken}, event: "machine declared is declared"},
		"a declared machine by itself": {user: "system:node:declared", asks: "system:node:declared",
			objects: []runtime.Object{machines}, approved: true},
		"a name that no node can have": {user: token, asks: "system:node:a/status",
			objects: []runtime.Object{existing}, event: "is not a node name"},
		"an empty name": {user: token, asks: "system:node:", event: "is not a node name"},
		"nodes that cannot be read": {user: token, asks: "system:node:b", fails: "nodes",
			err: "look for node b"},
		"an inventory that cannot be read": {user: token, asks: "system:node:b", fails: "configmaps",
			err: "look for machine b"},
		"unreadable nodes, a node's own renewal": {user: node, asks: node, fails: "nodes", approved: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t, certificatesv1.KubeAPIServerClientKubeletSignerName,
				x509.CertificateRequest{Subject: pkix.Name{CommonName: c.asks, Organization: []string{"system:nodes"}}},
				certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)
			r.Status, r.Spec.Username = certificatesv1.CertificateSigningRequestStatus{}, c.user
			client := fake.NewClientset(append(c.objects, r)...)
			client.PrependReactor(
				"create",
				"subjectaccessreviews",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, &authorizationv1.SubjectAccessReview{
						Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
					}, nil
				},
			)
			if c.fails != "" {
				client.PrependReactor("get", c.fails, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("unreadable")
				})
			}
			events := record.NewFakeRecorder(10)
			factory := informers.New(client)
			a, ok := NewApprover(loop.Context{Client: client, Informers: factory, Events: events,
				Log: slog.New(slog.DiscardHandler)}).(*approver)
			if !ok {
				t.Fatal("NewApprover returned another controller")
			}
			if err := informers.CertificateSigningRequests(factory).Informer().GetIndexer().Add(r); err != nil {
				t.Fatal(err)
			}
			err := a.sync(t.Context(), r.Name)
			if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("sync returned %v, want %q", err, c.err)
			}
			if got := hasCondition(getRequest(t, client, r.Name),
				certificatesv1.CertificateApproved); got != c.approved {
				t.Errorf("approved: %v, want %v", got, c.approved)
			}
			event := ""
			if len(events.Events) > 0 {
				event = <-events.Events
			}
			if (c.event == "") != (event == "") || !strings.Contains(event, c.event) {
				t.Errorf("event %q, want %q", event, c.event)
			}
		})
	}
}

// TestDeletedNodesReleaseTheirName checks that a request that waits for a node name is synced again when the Node is
// deleted.
func TestDeletedNodesReleaseTheirName(t *testing.T) {
	r := newRequest(
		t,
		certificatesv1.KubeAPIServerClientKubeletSignerName,
		x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
		},
		certificatesv1.UsageClientAuth,
	)
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
	other := newRequest(
		t,
		certificatesv1.KubeAPIServerClientKubeletSignerName,
		x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "system:node:b", Organization: []string{"system:nodes"}},
		},
		certificatesv1.UsageClientAuth,
	)
	other.Name, other.Status = "other", certificatesv1.CertificateSigningRequestStatus{}
	client := fake.NewClientset()
	factory := informers.New(client)
	a, ok := NewApprover(loop.Context{Client: client, Informers: factory,
		Log: slog.New(slog.DiscardHandler)}).(*approver)
	if !ok {
		t.Fatal("NewApprover returned another controller")
	}
	for _, r := range []*certificatesv1.CertificateSigningRequest{r, other} {
		if err := informers.CertificateSigningRequests(factory).Informer().GetIndexer().Add(r); err != nil {
			t.Fatal(err)
		}
	}
	a.enqueuePending("a")
	if got := a.Queue().Len(); got != 1 {
		t.Errorf("%d requests are queued, want 1", got)
	}
}
