package garbage

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/controllers/loop"
)

// A 404 for a path proves nothing about the objects that it served before.
// Proves S21.
func TestOnlyANotFoundForTheObjectMeansThatItIsGone(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no such object": {apierrors.NewNotFound(widgets, "w"), true},
		"no such kind": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound,
			Reason:  metav1.StatusReasonNotFound,
			Details: &metav1.StatusDetails{}}}, false},
		"no such path": {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", widgets, "w",
			"404 page not found", 0, true), false},
		"no status": {errors.New("not found"), false},
	} {
		if got := isObjectNotFound(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Proves S21.
func TestCyclesFollowBlockingReferencesOnly(t *testing.T) {
	block := true
	g := newGraph()
	put := func(uid, owner types.UID, block *bool) {
		g.put(
			object{
				&served{},
				&minimalMetadata{uid: uid, owners: []metav1.OwnerReference{{UID: owner, BlockOwnerDeletion: block}}},
			},
		)
	}
	put("a", "c", &block)
	put("b", "a", &block)
	put("c", "b", &block)
	put("leaf", "c", &block)
	if !g.isBlockedBy("b", "a") || !g.isBlockedBy("a", "a") {
		t.Error("the circle was not found")
	}
	if g.isBlockedBy("leaf", "a") || g.isBlockedBy("leaf", "c") {
		t.Error("an object without dependents waits for none")
	}
	put("a", "c", nil)
	if g.isBlockedBy("b", "a") {
		t.Error("what does not block makes no circle")
	}
}

// While the path of an owner's kind returns 404, for example because its definition is not established yet, no owner
// counts as gone. A 404 about the object itself counts.
// Proves S21.
func TestOwnersAreGoneOnlyIfTheAnswerIsAboutThem(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want ownerState
		err  bool
	}{
		"no such path": {"404 page not found\n", ownerLiving, true},
		"no such object": {`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"widgets.example.com \"w\" not found","reason":"NotFound","code":404,` +
			`"details":{"name":"w","group":"example.com","kind":"widgets"}}`, ownerGone, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.body[0] == '{' {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			client := metadata.NewForConfigOrDie(&rest.Config{Host: server.URL})
			g, ok := New(loop.Context{Metadata: client}).(*controller)
			if !ok {
				t.Fatal("it is no collector")
			}
			widgets := schema.GroupKind{Group: "example.com", Kind: "Widget"}
			g.byKind[widgets], g.isNamespaced[widgets] = schema.GroupVersionResource{
				Group:    "example.com",
				Version:  "v1",
				Resource: "widgets",
			}, true
			owned := object{&served{}, &minimalMetadata{namespace: "default", name: "p", uid: "1"}}
			got, err := g.lookUpOwner(t.Context(), owned,
				metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "2"})
			if got != c.want || (err != nil) != c.err {
				t.Errorf("it is %d, %v", got, err)
			}
		})
	}
}
