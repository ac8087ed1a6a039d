package request

import (
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

// ServeNotFound answers requests for unknown paths. Like upstream, it sends a Status only below the paths that
// upstream's own router serves. Elsewhere, including the groups of custom resources and aggregated servers, it sends a
// plain "not found".
func ServeNotFound(q *Request) error {
	parts := strings.Split(strings.Trim(q.Path, "/"), "/")
	switch {
	case strings.HasPrefix(q.Path, "//"):
		// Nothing is served below an empty path segment.
	case parts[0] == "api", parts[0] == "version", parts[0] == "apis" && (len(parts) == 1 || builtInGroups()[parts[1]]):
		return PageNotFound()
	}
	http.NotFound(q.Answer, q.HTTP)
	return ErrAnswered
}

// PageNotFound returns the error for a path that is not served.
func PageNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

var builtInGroups = sync.OnceValue(func() map[string]bool {
	groups := map[string]bool{}
	for gvk := range BuiltInKinds() {
		groups[gvk.Group] = true
	}
	return groups
})

// BuiltInKinds returns all kinds that are not declared by CustomResourceDefinitions.
var BuiltInKinds = sync.OnceValue(func() map[schema.GroupVersionKind]*kinds.Kind {
	all := map[schema.GroupVersionKind]*kinds.Kind{}
	for _, k := range kinds.All() {
		all[k.GVK] = k
		for _, a := range k.Aliases {
			all[a.GVK] = k
		}
	}
	return all
})

// IsIncompletePath reports whether the path ends after "watch" or "proxy", without the resource that must follow.
func (q *Request) IsIncompletePath() bool {
	return q.Resource && q.Name == "" &&
		(q.GroupVersionResource.Resource == "watch" || q.GroupVersionResource.Resource == "proxy") &&
		q.Namespace == ""
}
