package apiserver

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// request is a request on its way through the stages. It holds what the path and query name, and the results of the
// stages.
type request struct {
	api.Request
	http  *http.Request
	w     http.ResponseWriter
	query url.Values

	served           wire.Served     // the kind that the path names, if Resource
	isServed         bool            // whether that resource is served
	cache            *cache.Resource // nil for virtual kinds
	hasName          bool            // whether the path names an object
	hasNamespace     bool            // whether the path has a namespace
	isBelowWatch     bool            // whether the path is below /watch/
	hasExtraSegments bool            // whether the path has more segments after the subresource
	proxyPath        string          // path after a proxy subresource, with its slash
	user             api.User
	onEnd            func()       // called at the end of the request; may be nil
	bodyBudget       *flow.Budget // limits the parts of request bodies; nil: no limit
	holdsBodyBudget  bool         // whether this request holds a share of room
	media            wire.Media
	warnings         warnings
	auditRecord      *auditRecord // for the audit log; nil if nothing is recorded
	auditDecision    *audit.Decision
	isInternal       bool // whether this is a request of the server to itself; clients cannot set it

	aggregated   *aggregatedVersion // the aggregated server that answers; nil if this server does
	becomeStream func()             // lifts the time limits of a request that becomes a stream
	isStream     bool               // whether last was called

	isAuthorized bool // whether it is authorized
	// gauge that counts the request while it is open; nil unless it is a watch or a stream
	liveGauge      prometheus.Gauge
	schema         *flow.Schema  // flow schema of the seats; nil without priority and fairness
	seatsGrantedAt time.Time     // time when the request got its seats; zero if it did not wait
	seatWait       time.Duration // how long it waited for its seats

	isSentAdmitted bool // whether webhooks and policies have seen the sent object already
}

// isLongRunning reports whether the request has no time limit, because it is a watch or a stream.
func (q *request) isLongRunning() bool {
	if !q.Resource {
		return strings.HasPrefix(q.Path, "/debug/pprof/")
	}
	switch q.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return q.Verb == "watch" || q.isStream
}

// canUpgrade reports whether the request may become a stream to an aggregated server. Until that server agrees, it is
// an ordinary request.
func (q *request) canUpgrade() bool { return q.aggregated != nil && q.http.Header.Get("Upgrade") != "" }

// key returns the object's key, relative to the prefix of its kind.
func (q *request) key() string {
	if q.served.Namespaced {
		return q.Namespace + "/" + q.Name
	}
	return q.Name
}

// parseRequest parses a request. Paths are /api/v1/… and /apis/GROUP/VERSION/…, followed by
// [watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func (s *Server) parseRequest(w http.ResponseWriter, r *http.Request) *request {
	q := &request{http: r, w: w, query: r.URL.Query(), bodyBudget: s.bodyBudget}
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
		q.aggregated = s.serving.Load().serverOfDocument(q.Path)
		return q
	}
	q.Resource = true
	if parts[0] == "watch" && len(parts) > 1 {
		q.isBelowWatch, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		q.Namespace = parts[1]
		if sub := len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"); len(parts) > 2 && !sub {
			parts, q.hasNamespace = parts[2:], true
		}
	}
	q.GroupVersionResource.Resource = parts[0]
	if len(parts) > 1 {
		q.Name, q.hasName = parts[1], true
	}
	if len(parts) > 2 {
		q.Subresource = parts[2]
	}
	if len(parts) > 3 {
		// Only a proxied path has more segments. It is kept as it was sent.
		if _, after, ok := strings.Cut(r.URL.Path, "/"+q.Name+"/"+q.Subresource+"/"); ok {
			q.proxyPath = "/" + after
		}
	} else if q.Subresource == "proxy" && strings.HasSuffix(r.URL.Path, "/") {
		q.proxyPath = "/"
	}
	q.hasExtraSegments = len(parts) > 3
	q.lookUpKind(s)
	q.setVerb()
	return q
}

// lookUpKind looks up the served resource that the path names.
func (q *request) lookUpKind(s *Server) {
	serving := s.serving.Load()
	q.served, q.isServed = serving.resources[q.GroupVersionResource]
	if !q.isServed {
		q.aggregated = serving.aggregated[q.GroupVersion()]
	}
	if q.isServed {
		q.cache = s.cache.Resource(q.served.GR())
		if q.hasExtraSegments && q.Subresource != "proxy" {
			q.isServed = false
		}
	}
}

// maxParsedSelector is the length, in bytes, of the longest field selector that is parsed before authentication.
const maxParsedSelector = 4 << 10

// setVerb derives the API verb from the HTTP method.
func (q *request) setVerb() {
	q.FieldSelector, q.LabelSelector = q.query.Get("fieldSelector"), q.query.Get("labelSelector")
	if q.isBelowWatch {
		q.Verb = "watch"
		return
	}
	switch q.http.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case q.Name != "":
			q.Verb = "get"
		case boolParameter(q.query, "watch"):
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

// convert replaces entries by entries in the version of the request. Metadata is the same in all versions. So a client
// that wants only metadata, such as the garbage collector, does not depend on a webhook.
func (q *request) convert(entries []*cache.Entry) error {
	if !q.needsConversion() {
		return nil
	}
	return cache.Convert(q.http.Context(), entries, q.served.Kind)
}

// needsConversion reports whether entries may be stored in another version than the client wants.
func (q *request) needsConversion() bool {
	return q.served.Untyped != nil && len(q.served.Untyped.Family.Versions) > 1 &&
		q.media.Shape != "PartialObjectMetadata" &&
		q.media.Shape != "PartialObjectMetadataList"
}

// kind returns the version of the kind that is stored.
func (q *request) kind() *kinds.Kind {
	if q.served.Untyped != nil {
		return q.served.Untyped.Family.Stored
	}
	return q.served.Kind
}

// groupResource returns the resource for error messages.
func (q *request) groupResource() schema.GroupResource { return q.GroupVersionResource.GroupResource() }
