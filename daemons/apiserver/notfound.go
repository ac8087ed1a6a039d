package apiserver

import (
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveNotFound answers requests for unknown paths. Like upstream, it sends a Status only below the paths that
// upstream's own router serves. Elsewhere, including the groups of custom resources and aggregated servers, it sends a
// plain "not found".
func serveNotFound(q *request) error {
	parts := strings.Split(strings.Trim(q.Path, "/"), "/")
	switch {
	case strings.HasPrefix(q.Path, "//"):
		// Nothing is served below an empty path segment.
	case parts[0] == "api", parts[0] == "version", parts[0] == "apis" && (len(parts) == 1 || builtInGroups()[parts[1]]):
		return pageNotFound()
	}
	http.NotFound(q.w, q.http)
	return errAnswered
}

func pageNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

var builtInGroups = sync.OnceValue(func() map[string]bool {
	groups := map[string]bool{}
	for gvk := range builtInKinds() {
		groups[gvk.Group] = true
	}
	return groups
})

// isIncompletePath reports whether the path ends after "watch" or "proxy", without the resource that must follow.
func (q *request) isIncompletePath() bool {
	return q.Resource && q.Name == "" &&
		(q.GroupVersionResource.Resource == "watch" || q.GroupVersionResource.Resource == "proxy") &&
		q.Namespace == ""
}
