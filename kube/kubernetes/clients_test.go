package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	upstream "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"clusterctl/kube/kubernetes"
)

// clientMethods are the methods of every client of a kind in both client sets.
type clientMethods[P, L any] interface {
	Create(context.Context, P, metav1.CreateOptions) (P, error)
	Update(context.Context, P, metav1.UpdateOptions) (P, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (P, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (P, error)
}

// requestRecorder is an API server that records requests, and refuses each.
type requestRecorder struct{ requests []string }

func (r *requestRecorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.requests = append(r.requests, fmt.Sprintf("%s %s %s %s %q",
		req.Method, req.URL, req.Header.Get("Content-Type"), req.Header.Get("Accept"), body))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
}

// callAll makes each request that a client of a kind can make.
func callAll[P, L any](t *testing.T, c clientMethods[P, L], obj P) {
	t.Helper()
	ctx := t.Context()
	expect := func(err error) {
		t.Helper()
		if !apierrors.IsConflict(err) {
			t.Errorf("the server's answer is returned as %v", err)
		}
	}
	list := metav1.ListOptions{
		LabelSelector: "a=b", FieldSelector: "c=d", Limit: 5, TimeoutSeconds: ptr.To(int64(7)), ResourceVersion: "9",
		ResourceVersionMatch: metav1.ResourceVersionMatchExact, AllowWatchBookmarks: true, Continue: "x",
	}
	_, err := c.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{"All"}, FieldManager: "m"})
	expect(err)
	_, err = c.Update(ctx, obj, metav1.UpdateOptions{FieldValidation: "Strict"})
	expect(err)
	expect(c.Delete(ctx, "n", metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions: metav1.NewUIDPreconditions("u"),
	}))
	_, err = c.Get(ctx, "n", metav1.GetOptions{ResourceVersion: "3"})
	expect(err)
	_, err = c.List(ctx, list)
	expect(err)
	_, err = c.Watch(ctx, list)
	expect(err)
	_, err = c.Patch(ctx, "n", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{Force: ptr.To(true)}, "status")
	expect(err)
}

func TestRequestsMatchUpstreamsClients(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf" // as in the configuration of every daemon
	r := &requestRecorder{}
	server := httptest.NewServer(r)
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: protobuf}}
	ours, theirs := kubernetes.NewForConfigOrDie(config), upstream.NewForConfigOrDie(config)
	meta := metav1.ObjectMeta{Name: "n", Namespace: "ns"}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "a"}}
	deployment, node := &appsv1.Deployment{ObjectMeta: meta}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u"}}
	binding := &corev1.Binding{ObjectMeta: meta, Target: corev1.ObjectReference{Kind: "Node", Name: "a"}}
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a"}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	ctx, update, create := t.Context(), metav1.UpdateOptions{}, metav1.CreateOptions{}
	selected := metav1.ListOptions{LabelSelector: "a=b", TimeoutSeconds: ptr.To(int64(3))}

	callAll(t, theirs.CoreV1().Pods("ns"), pod)
	callAll(t, theirs.AppsV1().Deployments("ns"), deployment)
	callAll(t, theirs.CoreV1().Nodes(), node)
	_, _ = theirs.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, _ = theirs.CoreV1().Pods("ns").UpdateStatus(ctx, pod, update)
	_ = theirs.CoreV1().Pods("ns").Bind(ctx, binding, create)
	_, _ = theirs.CoreV1().Namespaces().Finalize(ctx, namespace, update)
	_, _ = theirs.CoreV1().ServiceAccounts("ns").CreateToken(ctx, "s", token, create)
	_ = theirs.CoreV1().Secrets("ns").DeleteCollection(ctx, metav1.DeleteOptions{}, selected)
	_, _ = theirs.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, create)
	_, _ = theirs.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, "r", request, update)
	want := r.requests
	r.requests = nil

	callAll(t, ours.CoreV1().Pods("ns"), pod)
	callAll(t, ours.AppsV1().Deployments("ns"), deployment)
	callAll(t, ours.CoreV1().Nodes(), node)
	_, _ = ours.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, _ = ours.CoreV1().Pods("ns").UpdateStatus(ctx, pod, update)
	_ = ours.CoreV1().Pods("ns").Bind(ctx, binding, create)
	_, _ = ours.CoreV1().Namespaces().Finalize(ctx, namespace, update)
	_, _ = ours.CoreV1().ServiceAccounts("ns").CreateToken(ctx, "s", token, create)
	_ = ours.CoreV1().Secrets("ns").DeleteCollection(ctx, metav1.DeleteOptions{}, selected)
	_, _ = ours.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, create)
	_, _ = ours.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, "r", request, update)

	for i := range max(len(want), len(r.requests)) {
		if i >= len(want) || i >= len(r.requests) || want[i] != r.requests[i] {
			t.Errorf("request %d of %d is\n%s\nwant, of %d\n%s", i, len(r.requests),
				r.requests[min(i, len(r.requests)-1)], len(want), want[min(i, len(want)-1)])
		}
	}
	if len(want) < 29 {
		t.Errorf("only %d requests were made", len(want))
	}
}
