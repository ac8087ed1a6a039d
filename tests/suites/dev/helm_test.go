package dev

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestHelmInstallsUpgradesRollsBackAndUninstalls uses the real helm with a chart that has a definition, objects of
// it, hooks and a workload.
// Proves S12.
func TestHelmInstallsUpgradesRollsBackAndUninstalls(t *testing.T) {
	path := programPath(t, "helm", "../../tools/external", "helm.sh/helm/v4/cmd/helm")
	ns := createNamespace(t)
	helm := func(args ...string) (string, error) {
		return runProgram(t, path, append(args, "--namespace", ns)...)
	}
	works := func(want string, args ...string) {
		t.Helper()
		out, err := helm(args...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, want) {
			t.Fatalf("helm %s lacks %q:\n%s", strings.Join(args, " "), want, out)
		}
	}
	offers := dynamicClient.Resource(schema.GroupVersionResource{Group: "shop.example.com", Version: "v1",
		Resource: "offers"}).
		Namespace(ns)
	check := func(text, revision string, replicas int32) {
		t.Helper()
		offer := must[*unstructured.Unstructured](t)(offers.Get(t.Context(), "shop", metav1.GetOptions{}))
		if output, _, _ := unstructured.NestedString(offer.Object, "spec", "text"); output != text {
			t.Errorf("the offer says %q, want %q", output, text)
		}
		d, err := sharedClient.AppsV1().Deployments(ns).Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || d.Status.ReadyReplicas != replicas || d.Spec.Template.Annotations["text"] != text {
			t.Errorf("the deployment: %v, %v", d, err)
		}
		after, err := sharedClient.CoreV1().ConfigMaps(ns).Get(t.Context(), "shop-after", metav1.GetOptions{})
		if err != nil || after.Data["revision"] != revision {
			t.Errorf("the hook of revision %s: %v, %v", revision, after, err)
		}
	}
	works("STATUS: deployed", "install", "shop", "testdata/chart", "--wait", "--timeout", "60s")
	check("first", "1", 2)
	works("Succeeded", "test", "shop")
	works("STATUS: deployed", "upgrade", "shop", "testdata/chart", "--wait", "--timeout", "60s", "--set",
		"text=second,replicas=3")
	check("second", "2", 3)
	if out, err := helm("upgrade", "shop", "testdata/chart", "--wait", "--timeout", "20s", "--set",
		"text=third,fail=true"); err == nil ||
		!strings.Contains(out, "pre-upgrade") {
		t.Errorf("an upgrade whose hook fails: %v\n%s", err, out)
	}
	check("second", "2", 3)
	works("Rollback was a success", "rollback", "shop", "1", "--wait", "--timeout", "60s")
	check("first", "1", 2) // as the release was rendered at its installation
	works("shop.example.com/v1", "get", "manifest", "shop")
	works("superseded", "history", "shop")
	works("uninstalled", "uninstall", "shop", "--wait", "--timeout", "60s")
	waitFor(t, "what the release had to be gone", func(ctx context.Context) (bool, any) {
		left, err := offers.List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) > 0 {
			return false, left
		}
		pods, err := sharedClient.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=shop"})
		return err == nil && len(pods.Items) == 0, pods
	})
}
