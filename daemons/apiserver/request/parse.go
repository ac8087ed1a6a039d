package request

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds is the set of served kinds.
type Kinds interface {
	// Target returns the resource that this server serves.
	Target(gvr schema.GroupVersionResource) Target
	// Aggregated returns the handler of a group version that an aggregated server serves; nil if none does.
	Aggregated(gv schema.GroupVersion) Handler
	// AggregatedDocument is like Aggregated, for a path that names no resource.
	AggregatedDocument(path string) Handler
}

// Parse parses a request. Paths are /api/v1/… and /apis/GROUP/VERSION/…, followed by
// [watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func Parse(w http.ResponseWriter, r *http.Request, served Kinds) *Request {
	both := &struct { // one allocation
		request Request
		answer  Answer
	}{}
	q := &both.request
	q.HTTP, q.Query, q.Answer = r, r.URL.Query(), &both.answer
	q.Answer.ResponseWriter = w
	q.Path = r.URL.Path
	q.Verb = strings.ToLower(r.Method)
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case strings.HasPrefix(r.URL.Path, "//"):
		return q
	case len(parts) >= 3 && parts[0] == "api":
		q.GroupVersionResource.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.Group, q.GroupVersionResource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		q.Aggregated = served.AggregatedDocument(q.Path)
		return q
	}
	q.Resource = true
	if parts[0] == "watch" && len(parts) > 1 {
		q.IsBelowWatch, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		q.Namespace = parts[1]
		if sub := len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"); len(parts) > 2 && !sub {
			parts, q.HasNamespace = parts[2:], true
		}
	}
	q.parseResource(parts)
	q.LookUpKind(served)
	q.setVerb()
	return q
}

// parseResource parses RESOURCE[/NAME[/SUBRESOURCE[/…]]].
func (q *Request) parseResource(parts []string) {
	q.GroupVersionResource.Resource = parts[0]
	if len(parts) > 1 {
		q.Name, q.HasName = parts[1], true
	}
	if len(parts) > 2 {
		q.Subresource = parts[2]
	}
	if len(parts) > 3 {
		// Only a proxied path has more segments. It is kept as it was sent.
		if _, after, ok := strings.Cut(q.Path, "/"+q.Name+"/"+q.Subresource+"/"); ok {
			q.ProxyPath = "/" + after
		}
	} else if q.Subresource == "proxy" && strings.HasSuffix(q.Path, "/") {
		q.ProxyPath = "/"
	}
	q.HasExtraSegments = len(parts) > 3
}

// LookUpKind looks up the served resource that the path names.
func (q *Request) LookUpKind(served Kinds) {
	q.Target = served.Target(q.GroupVersionResource)
	if !q.IsServed {
		q.Aggregated = served.Aggregated(q.GroupVersion())
	} else if q.HasExtraSegments && q.Subresource != "proxy" {
		q.IsServed = false
	}
}

// maxParsedSelector is the length, in bytes, of the longest field selector that is parsed before authentication.
const maxParsedSelector = 4 << 10

// setVerb derives the API verb from the HTTP method.
func (q *Request) setVerb() {
	q.FieldSelector, q.LabelSelector = q.Query.Get("fieldSelector"), q.Query.Get("labelSelector")
	if q.IsBelowWatch {
		q.Verb = "watch"
		return
	}
	switch q.HTTP.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case q.Name != "":
			q.Verb = "get"
		case BoolParameter(q.Query, "watch"):
			q.Verb = "watch"
		default:
			q.Verb = "list"
		}
		// A list that selects one name is authorized for that name.
		if q.Name == "" && q.FieldSelector != "" && len(q.FieldSelector) <= maxParsedSelector {
			if name, ok := selectedName(q.FieldSelector); ok && len(content.IsPathSegmentName(name)) == 0 {
				q.Name = name
			}
		}
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	case http.MethodPatch:
		q.Verb = "patch"
	case http.MethodDelete:
		q.Verb = "delete"
		if q.Name == "" {
			q.Verb = "deletecollection"
		}
	}
}
