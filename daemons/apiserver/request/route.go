package request

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

// CheckRoute returns an error for paths that do not exist, and for methods that their paths do not have.
func (q *Request) CheckRoute() error {
	if !q.Served.Namespaced && q.HasNamespace {
		return ServeNotFound(q) // it was authorized as a namespaced request
	}
	if q.Subresource != "" {
		if q.IsBelowWatch || q.Name == "" || q.Served.Namespaced && q.Namespace == "" {
			return PageNotFound()
		}
		return q.rejectHead()
	}
	verbs := q.pathVerbs()
	switch {
	case q.Served.Untyped != nil && !q.HasName && (q.Verb == "update" || q.Verb == "patch") && len(verbs) > 0:
		return apierrors.NewBadRequest("name must be provided")
	case len(verbs) == 0:
		return ServeNotFound(q)
	case !slices.Contains(verbs, q.Verb):
		return MethodNotAllowed(q)
	case q.IsBelowWatch && q.HTTP.Method != http.MethodGet:
		return MethodNotAllowed(q)
	}
	return q.rejectHead()
}

// rejectHead refuses HEAD as upstream does. HEAD works for custom resources, and a proxied server decides itself.
func (q *Request) rejectHead() error {
	if q.HTTP.Method == http.MethodHead && q.Served.Untyped == nil && q.Subresource != "proxy" {
		return MethodNotAllowed(q)
	}
	return nil
}

// pathVerbs returns the verbs of a path without a subresource.
func (q *Request) pathVerbs() []string {
	everywhere := q.Served.Namespaced && q.Namespace == ""
	var at []string
	switch {
	case q.IsBelowWatch && everywhere && q.HasName:
	case q.IsBelowWatch:
		at = watchVerbs
	case everywhere && q.HasName:
	case everywhere:
		at = collectionVerbs[:2]
		if q.Served.Untyped != nil && q.Verb != "list" && q.Verb != "watch" {
			return nil // over all namespaces, custom resources have only these methods
		}
	case q.HasName && q.Served.Untyped != nil && q.Verb == "create":
		at = collectionVerbs // custom resources ignore the name in the path of a create
	case q.HasName:
		at = itemVerbs
	default:
		at = collectionVerbs
	}
	if q.Served.Verbs == nil && !q.Served.Virtual {
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

// IsHealthPath reports whether a path is that of a health check.
func IsHealthPath(path string) bool {
	for _, p := range []string{"/livez", "/readyz", "/healthz"} {
		if path == p || strings.HasPrefix(path, p+"/") && !strings.Contains(path, "/..") {
			return true
		}
	}
	return false
}

// supportsVerb reports whether the resource supports a verb.
func (q *Request) supportsVerb(verb string) bool {
	switch {
	case q.Served.Verbs != nil:
		return slices.Contains(q.Served.Verbs, verb)
	case q.Served.Virtual:
		return verb == "create"
	}
	return true
}

// MethodNotAllowed returns the error for a method that a path does not have. For built-in kinds the error names no
// resource, because upstream's router reports it.
func MethodNotAllowed(q *Request) error {
	if q.Served.Kind != nil && q.Served.Untyped != nil {
		return apierrors.NewMethodNotSupported(q.GroupResource(), q.Verb)
	}
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// WithWatchSelectors returns the request with the selectors of a watch below /watch/. They apply after authorization,
// which must not see them: not all of these paths have selectors.
func (q *Request) WithWatchSelectors() (*Request, error) {
	if !q.IsBelowWatch {
		return q, nil
	}
	one := *q
	one.FieldSelector, one.LabelSelector = q.Query.Get("fieldSelector"), q.Query.Get("labelSelector")
	switch {
	case q.Name == "":
	case one.FieldSelector == "":
		one.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.Name).String()
	default:
		if name, ok := selectedName(one.FieldSelector); !ok || name != q.Name {
			return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	return &one, nil
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
