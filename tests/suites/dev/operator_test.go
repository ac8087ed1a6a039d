package dev

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// freeAddress returns an unused loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestOperatorsWithWebhooksWork runs an operator with controller-runtime outside the cluster, as its developers
// do: a definition of two versions with webhooks for conversion, defaults and validation.
// Proves S12.
func TestOperatorsWithWebhooksWork(t *testing.T) {
	ns := createNamespace(t)
	definitions := dynamicClient.Resource(
		schema.GroupVersionResource{
			Group:    "apiextensions.k8s.io",
			Version:  "v1",
			Resource: "customresourcedefinitions",
		},
	)
	health := freeAddress(t)
	startProgram(t, programPath(t, "operator", "../../..", "./tests/programs/operator"), "-namespace", ns, "-url",
		"https://"+freeAddress(t), "-health", health)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, gvr := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			_ = dynamicClient.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
				Resource: gvr}).
				Delete(ctx, "operator", metav1.DeleteOptions{})
		}
		_ = definitions.Delete(ctx, "sites.operator.example.com", metav1.DeleteOptions{})
	})
	v1 := dynamicClient.Resource(schema.GroupVersionResource{Group: "operator.example.com", Version: "v1",
		Resource: "sites"}).
		Namespace(ns)
	v2 := dynamicClient.Resource(schema.GroupVersionResource{Group: "operator.example.com", Version: "v2",
		Resource: "sites"}).
		Namespace(ns)
	site := newSite
	waitFor(t, "the operator", func(ctx context.Context) (bool, any) {
		q := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil))
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			return false, err
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK, answer.Status
	})
	// A write in one version is sent to the webhooks of the other.
	must[*unstructured.Unstructured](t)(v1.Create(t.Context(), site("v1", "old",
		map[string]any{"image": "x", "message": "hello"}), metav1.CreateOptions{}))
	made := must[*unstructured.Unstructured](t)(v2.Get(t.Context(), "old", metav1.GetOptions{}))
	image, _, _ := unstructured.NestedString(made.Object, "spec", "container", "image")
	replicas, _, _ := unstructured.NestedInt64(made.Object, "spec", "replicas")
	if image != "x" || replicas != 2 {
		t.Errorf("the other version: %v", made.Object)
	}
	_, err := v2.Create(t.Context(), site("v2", "many",
		map[string]any{"container": map[string]any{"image": "x"}, "replicas": int64(9)}), metav1.CreateOptions{})
	want := `admission webhook "judge.operator.example.com" denied the request: a site has at most 5 replicas, many asks for 9`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	waitForReady(t, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return v2.Get(ctx, "old", metav1.GetOptions{})
	}, 2)
	must[*unstructured.Unstructured](t)(v2.Patch(t.Context(), "old", types.MergePatchType,
		[]byte(`{"spec":{"replicas":3,"text":"changed"}}`), metav1.PatchOptions{}))
	waitForReady(t, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return v1.Get(ctx, "old", metav1.GetOptions{})
	}, 3)
	waitFor(t, "the text", func(ctx context.Context) (bool, any) {
		d, err := sharedClient.AppsV1().Deployments(ns).Get(ctx, "old", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		env := d.Spec.Template.Spec.Containers[0].Env
		return len(env) == 1 && env[0].Value == "changed", env
	})
	if err := v1.Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its deployment to go", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(err, strings.Repeat("x", len(list.Items)))
	})
}

// waitForReady waits until the status of a site has a number of ready replicas.
func waitForReady(t *testing.T, client func(ctx context.Context) (*unstructured.Unstructured, error), n int64) {
	t.Helper()
	waitFor(t, fmt.Sprint(n, " ready"), func(ctx context.Context) (bool, any) {
		u, err := client(ctx)
		if err != nil {
			return false, err
		}
		got, _, _ := unstructured.NestedInt64(u.Object, "status", "ready")
		return got == n, u.Object
	})
}

// newSite returns a site of a version.
func newSite(version, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.example.com/" + version, "kind": "Site", "metadata": map[string]any{"name": name},
		"spec": spec,
	}}
}
