package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What paths a resource has, and what may be done at each, follows from its declaration. A path that nothing can be
// done at is not there; elsewhere, what cannot be done is not allowed.

var (
	collectionVerbs = []string{"list", "watch", "create", "deletecollection"}
	itemVerbs       = []string{"get", "update", "patch", "delete"}
	watchVerbs      = []string{"watch"}
)

// route refuses paths that are not there, and methods that their paths do not have.
func (q *request) route() error {
	if !q.served.Namespaced && q.inside {
		return nothingAt(q) // it was authorized as what is in a namespace
	}
	if q.Subresource != "" {
		if q.watches || q.Name == "" || q.served.Namespaced && q.Namespace == "" {
			return pageNotFound()
		}
		return q.headless()
	}
	verbs := q.verbs()
	switch {
	case q.served.Untyped != nil && !q.named && (q.Verb == "update" || q.Verb == "patch") && len(verbs) > 0:
		return apierrors.NewBadRequest("name must be provided")
	case len(verbs) == 0:
		return nothingAt(q)
	case !slices.Contains(verbs, q.Verb):
		return methodNotAllowed(q)
	case q.watches && q.http.Method != http.MethodGet:
		return methodNotAllowed(q)
	}
	return q.headless()
}

// headless refuses HEAD where upstream does: what definitions declare is answered, and what is behind a proxy decides
// itself.
func (q *request) headless() error {
	if q.http.Method == http.MethodHead && q.served.Untyped == nil && q.Subresource != "proxy" {
		return methodNotAllowed(q)
	}
	return nil
}

// verbs are what can be done at a path of a resource itself.
func (q *request) verbs() []string {
	everywhere := q.served.Namespaced && q.Namespace == ""
	var at []string
	switch {
	case q.watches && everywhere && q.named:
	case q.watches:
		at = watchVerbs
	case everywhere && q.named:
	case everywhere:
		at = collectionVerbs[:2]
		if q.served.Untyped != nil && q.Verb != "list" && q.Verb != "watch" {
			return nil // over all namespaces, what definitions declare has no methods but these
		}
	case q.named && q.served.Untyped != nil && q.Verb == "create":
		at = collectionVerbs // where the name of the path means nothing
	case q.named:
		at = itemVerbs
	default:
		at = collectionVerbs
	}
	if q.served.Verbs == nil && !q.served.Virtual {
		return at
	}
	var verbs []string
	for _, verb := range at {
		if q.serves(verb) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// serves says whether a verb is served of the resource.
func (q *request) serves(verb string) bool {
	switch {
	case q.served.Verbs != nil:
		return slices.Contains(q.served.Verbs, verb)
	case q.served.Virtual:
		return verb == "create"
	}
	return true
}

// methodNotAllowed refuses a method that a path does not have: upstream's router does that for the kinds that are built
// in, and names nothing.
func methodNotAllowed(q *request) error {
	if q.served.Kind != nil && q.served.Untyped != nil {
		return apierrors.NewMethodNotSupported(q.gr(), q.Verb)
	}
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// takeSelectors reads what a watch selects by whose path says that it is one. Who may watch was not asked with that:
// not all of these paths have selectors.
func (q *request) takeSelectors() error {
	if !q.watches {
		return nil
	}
	q.FieldSelector, q.LabelSelector = q.query.Get("fieldSelector"), q.query.Get("labelSelector")
	if q.Name == "" {
		return nil
	}
	if q.FieldSelector == "" {
		q.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.Name).String()
		return nil
	}
	if name, ok := nameSelected(q.FieldSelector); !ok || name != q.Name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// nameSelected is the one name that a field selector allows, if it is like that.
func nameSelected(selector string) (string, bool) {
	if !strings.Contains(selector, "metadata.name") {
		return "", false
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", false
	}
	return parsed.RequiresExactMatch("metadata.name")
}

// getOnly says whether a path is of a document that there is no other way to ask for than GET.
func (o *offer) getOnly(path string) bool {
	switch path {
	case "/version", "/version/", "/.well-known/openid-configuration", "/openid/v1/jwks":
		return true
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	versioned := parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) == 3
	return versioned && o.discovery.Knows(path)
}
