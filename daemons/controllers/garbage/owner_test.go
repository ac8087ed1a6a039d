package garbage

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A path that is not there says nothing of the objects that it served before.
func TestOnlyAnAnswerAboutTheObjectSaysThatItIsGone(t *testing.T) { // S21
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no such object": {apierrors.NewNotFound(widgets, "w"), true},
		"no such kind": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Details: &metav1.StatusDetails{}}}, false},
		"no such path": {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", widgets, "w", "404 page not found", 0, true), false},
		"no status":    {errors.New("not found"), false},
	} {
		if got := ofAnObject(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCirclesAreFoundAlongBlockingReferencesOnly(t *testing.T) { // S21
	block := true
	g := newGraph()
	put := func(uid, owner types.UID, block *bool) {
		g.put(&object{identity: identity{uid: uid}, owners: []metav1.OwnerReference{{UID: owner, BlockOwnerDeletion: block}}})
	}
	put("a", "c", &block)
	put("b", "a", &block)
	put("c", "b", &block)
	put("leaf", "c", &block)
	if !g.blockedBy("b", "a") || !g.blockedBy("a", "a") {
		t.Error("the circle was not found")
	}
	if g.blockedBy("leaf", "a") || g.blockedBy("leaf", "c") {
		t.Error("a leaf waits for nobody")
	}
	put("a", "c", nil)
	if g.blockedBy("b", "a") {
		t.Error("what does not block makes no circle")
	}
}
