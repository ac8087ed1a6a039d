package workload

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/provision/support"
)

// Without a majority of etcd nothing can be listed. This is reported once.
func TestUnlistedKindsAreNamedOnce(t *testing.T) {
	l, client := newFakeLive(newItem("v1", "Node", "", "n",
		map[string]any{"spec": map[string]any{"providerID": "hunter2hunter2"}}))
	redactor := support.NewRedactor([]string{"hunter2hunter2"})
	files, problems := l.gatherAll(t.Context(), []schema.GroupVersionResource{nodes, pods}, redactor)
	if len(problems) != 0 ||
		!strings.Contains(string(files[0].Content), "name: \"n\"") &&
			!strings.Contains(string(files[0].Content), "name: n") {
		t.Errorf("problems %q, nodes:\n%s", problems, files[0].Content)
	}
	if strings.Contains(string(files[0].Content), "hunter2") {
		t.Errorf("a known value is shown:\n%s", files[0].Content)
	}
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTimeoutError("the store did not answer for "+a.GetResource().Resource, 0)
	})
	files, problems = l.gatherAll(t.Context(), []schema.GroupVersionResource{nodes, pods}, redactor)
	want := []string{
		"objects of 2 of 2 kinds are missing or not all there (nodes, pods): Timeout: the store did not answer for " +
			"nodes",
	}
	if !slices.Equal(problems, want) {
		t.Errorf("problems %q, want %q", problems, want)
	}
	if files[1].Name != "pods.yaml" || !strings.HasPrefix(string(files[1].Content), "# Timeout: ") {
		t.Errorf("%s: %s", files[1].Name, files[1].Content)
	}
}

func TestListFailuresAreGroupedByReason(t *testing.T) {
	var kinds []schema.GroupVersionResource
	var failed []error
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		kinds = append(kinds, schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: name})
		failed = append(failed,
			&url.Error{Op: "Get", URL: "https://127.0.0.1/" + name, Err: errors.New("connection refused")})
	}
	failed[0] = nil
	failed[1] = errors.New("odd (get b.x.io)")
	want := []string{
		"objects of 1 of 8 kinds are missing or not all there (b.x.io): odd",
		"objects of 6 of 8 kinds are missing or not all there (c.x.io, d.x.io, e.x.io, f.x.io, g.x.io, h.x.io): " +
			"connection refused",
	}
	if got := describeUnlisted(kinds, failed); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
