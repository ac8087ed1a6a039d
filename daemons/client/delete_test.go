package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// TestDeletionsMatchClientGo compares the requests and results of both clients with the same
// server.
func TestDeletionsMatchClientGo(t *testing.T) {
	const refusal = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no %[1]d","reason":%[2]q,"code":%[1]d}`
	for name, c := range map[string]struct {
		code    int
		text    string
		headers map[string]string
		first   bool // the answer is the first of two; the second is a success
	}{
		"deleted":             {code: 200, text: `{"kind":"Status","status":"Success"}`},
		"will be":             {code: 202, text: `{"kind":"Pod"}`},
		"not there":           {code: 404, text: fmt.Sprintf(refusal, 404, metav1.StatusReasonNotFound)},
		"another":             {code: 409, text: fmt.Sprintf(refusal, 409, metav1.StatusReasonConflict)},
		"not there, says who": {code: 404, text: "404 page not found"},
		"forbidden":           {code: 403, text: fmt.Sprintf(refusal, 403, metav1.StatusReasonForbidden)},
		"not just now": {code: 429, text: fmt.Sprintf(refusal, 429, metav1.StatusReasonTooManyRequests),
			headers: map[string]string{"Retry-After": "0"}, first: true},
		"broken":                {code: 500, text: "oh"},
		"not there, in a wreck": {code: 404, text: `{"kind":"Status","status":"Success"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var requests []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				if c.first && len(requests) > 0 {
					return
				}
				requests = append(requests, fmt.Sprint(r.Method, r.RequestURI, r.Header.Get("Content-Type"),
					r.Header.Get("Accept") != "", string(bytes.TrimSpace(body))))
				for k, v := range c.headers {
					w.Header().Set(k, v)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				fmt.Fprint(w, c.text)
			}))
			defer s.Close()
			cfg := &rest.Config{Host: s.URL, QPS: -1}
			own, err := Metadata(cfg, s.Client())
			if err != nil {
				t.Fatal(err)
			}
			theirs := metadata.NewForConfigOrDie(cfg)
			got, errs := deleteBoth(t, own, &requests)
			want, wantErrs := deleteBoth(t, theirs, &requests)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("asked %q, client-go %q", got, want)
			}
			for i, err := range errs {
				if (err == nil) != (wantErrs[i] == nil) ||
					apierrors.ReasonForError(err) != apierrors.ReasonForError(wantErrs[i]) ||
					err != nil && err.Error() != wantErrs[i].Error() {
					t.Errorf("got the error %v, of client-go %v", err, wantErrs[i])
				}
			}
		})
	}
}

// deleteBoth deletes a pod and a cluster role with a client. It returns the requests and the results.
func deleteBoth(t *testing.T, client metadata.Interface, requested *[]string) (first []string, errs []error) {
	pods, roles := schema.GroupVersionResource{
		Version:  "v1",
		Resource: "pods",
	}, schema.GroupVersionResource{
		Group:    "rbac.authorization.k8s.io",
		Version:  "v1",
		Resource: "clusterroles",
	}
	uid, policy := types.UID("u"), metav1.DeletePropagationForeground
	for _, of := range []metadata.ResourceInterface{client.Resource(pods).Namespace("n"),
		client.Resource(roles)} {
		*requested = nil
		errs = append(
			errs,
			of.Delete(
				t.Context(),
				"system:a",
				metav1.DeleteOptions{
					Preconditions:     &metav1.Preconditions{UID: &uid},
					PropagationPolicy: &policy,
				},
			),
		)
		first = append(first, (*requested)[0])
	}
	return first, errs
}
