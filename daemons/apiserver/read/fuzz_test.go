package read

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// storedPod is the key and the value of a stored pod.
const (
	storedKey = "a/b"
	storedPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"a","labels":{"a":"b"}},` +
		`"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`
)

// FuzzSelection parses selectors, continue tokens and resource versions, and selects from a pod.
func FuzzSelection(f *testing.F) {
	f.Add("a in (b,c),!d,e!=f,g>1", "metadata.name=a,spec.nodeName!=b",
		"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhL2IifQ")
	f.Add("a,b=", "status.phase!=Running", "x")
	f.Add("", "metadata.namespace=a", "18446744073709551615")
	pods := podKind(f)
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector, text string) {
		q := &request.Request{Target: request.Target{Served: wire.Served{Kind: pods}, IsServed: true}}
		q.LabelSelector, q.FieldSelector = labelSelector, fieldSelector
		sel, err := Select(q)
		mustBeClientError(t, err)
		if err == nil {
			e, err := cache.NewEntry(pods, storedKey, []byte(storedPod), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			sel.matches(e)
		}
		if tok, err := parseToken(text); err != nil {
			mustBeClientError(t, err)
		} else if again, err := parseToken(tok.String()); err != nil || again != tok {
			t.Errorf("a token %+v becomes %+v (%v)", tok, again, err)
		}
		if _, err = parseVersion(text); err != nil {
			mustBeClientError(t, invalidVersion(err))
		}
	})
}

func podKind(tb testing.TB) *kinds.Kind {
	tb.Helper()
	for _, k := range kinds.All() {
		if k.Resource == "pods" && k.GVK.Group == "" {
			return k
		}
	}
	tb.Fatal("pods are not served")
	return nil
}

// mustBeClientError fails the test if an error is not a client error (4xx).
func mustBeClientError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) || apiStatus.Status().Code < http.StatusBadRequest ||
		apiStatus.Status().Code >= http.StatusInternalServerError {
		t.Errorf("what a client sent is answered with %v", err)
	}
}
