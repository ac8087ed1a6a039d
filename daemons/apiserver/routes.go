package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The paths and methods of a resource follow from its declaration. A path without any method is "not found". On other
// paths, a method that is not supported is "not allowed".

var (
	collectionVerbs = []string{"list", "watch", "create", "deletecollection"}
	itemVerbs       = []string{"get", "update", "patch", "delete"}
	watchVerbs      = []string{"watch"}
)

// checkRoute returns an error for paths that do not exist, and for methods that their paths do not have.
func (q *request) checkRoute() error {
	if !q.served.Namespaced && q.hasNamespace {
		return serveNotFound(q) // it was authorized as a namespaced request
	}
	if q.Subresource != "" {
		if q.isBelowWatch || q.Name == "" || q.served.Namespaced && q.Namespace == "" {
			return pageNotFound()
		}
		return q.rejectHead()
	}
	verbs := q.pathVerbs()
	switch {
	case q.served.Untyped != nil && !q.hasName && (q.Verb == "update" || q.Verb == "patch") && len(verbs) > 0:
		return apierrors.NewBadRequest("name must be provided")
	case len(verbs) == 0:
		return serveNotFound(q)
	case !slices.Contains(verbs, q.Verb):
		return methodNotAllowed(q)
	case q.isBelowWatch && q.http.Method != http.MethodGet:
		return methodNotAllowed(q)
	}
	return q.rejectHead()
}

// rejectHead refuses HEAD as upstream does. HEAD works for custom resources, and a proxied server decides itself.
func (q *request) rejectHead() error {
	if q.http.Method == http.MethodHead && q.served.Untyped == nil && q.Subresource != "proxy" {
		return methodNotAllowed(q)
	}
	return nil
}

// pathVerbs returns the verbs of a path without a subresource.
func (q *request) pathVerbs() []string {
	everywhere := q.served.Namespaced && q.Namespace == ""
	var at []string
	switch {
	case q.isBelowWatch && everywhere && q.hasName:
	case q.isBelowWatch:
		at = watchVerbs
	case everywhere && q.hasName:
	case everywhere:
		at = collectionVerbs[:2]
		if q.served.Untyped != nil && q.Verb != "list" && q.Verb != "watch" {
			return nil // over all namespaces, custom resources have only these methods
		}
	case q.hasName && q.served.Untyped != nil && q.Verb == "create":
		at = collectionVerbs // custom resources ignore the name in the path of a create
	case q.hasName:
		at = itemVerbs
	default:
		at = collectionVerbs
	}
	if q.served.Verbs == nil && !q.served.Virtual {
		return at
	}
	var verbs []string
	for _, verb := range at {
		if q.supportsVerb(verb) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// supportsVerb reports whether the resource supports a verb.
func (q *request) supportsVerb(verb string) bool {
	switch {
	case q.served.Verbs != nil:
		return slices.Contains(q.served.Verbs, verb)
	case q.served.Virtual:
		return verb == "create"
	}
	return true
}

// methodNotAllowed returns the error for a method that a path does not have. For built-in kinds the error names no
// resource, because upstream's router reports it.
func methodNotAllowed(q *request) error {
	if q.served.Kind != nil && q.served.Untyped != nil {
		return apierrors.NewMethodNotSupported(q.groupResource(), q.Verb)
	}
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// setWatchSelectors sets the selectors of a watch below /watch/. It runs after authorization, which must not see them:
// not all of these paths have selectors.
func (q *request) setWatchSelectors() error {
	if !q.isBelowWatch {
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
	if name, ok := selectedName(q.FieldSelector); !ok || name != q.Name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// selectedName returns the name that a field selector requires, if it requires one.
func selectedName(selector string) (string, bool) {
	if !strings.Contains(selector, "metadata.name") {
		return "", false
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", false
	}
	return parsed.RequiresExactMatch("metadata.name")
}

// isGetOnly reports whether a path is that of a document that only GET can read.
func (o *servedKinds) isGetOnly(path string) bool {
	switch path {
	case "/version", "/version/", "/.well-known/openid-configuration", "/openid/v1/jwks":
		return true
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	versioned := parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) == 3
	return versioned && o.discovery.Has(path)
}
