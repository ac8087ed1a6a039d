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

// request is a request on its way through the stages: what it asks for, and what the
// stages found out.
type request struct {
	api.Request
	http  *http.Request
	w     http.ResponseWriter
	query url.Values

	served   wire.Served     // what the path names, if Resource
	known    bool            // whether such a resource is served
	cache    *cache.Resource // nil for virtual kinds
	named    bool            // whether the path names an object
	inside   bool            // whether what the path names is in a namespace, by the path
	watches  bool            // whether the path itself says that it is a watch
	deep     bool            // whether the path has more after a subresource
	rest     string          // path after a proxy subresource, with its slash
	user     api.User
	over     func()       // called when the request is; may be nil
	room     *flow.Budget // limits the parts of request bodies; nil: no limit
	roomy    bool         // whether this request holds a share of room
	media    wire.Media
	warnings warnings
	trail    *trail // for the audit log; nil: nothing is kept
	judged   *audit.Decision
	internal bool // whether the server asks by itself; no client can say so

	aggregated *aggregated // who answers, if it is another server
	last       func()      // lifts the limits on its time, of a request that may become a stream
	lasts      bool        // whether it did

	passed bool             // whether it is authorized
	open   prometheus.Gauge // counts it while it is open, if it is a watch or a stream; may be nil
	schema *flow.Schema     // what it has its turn by; nil: it has none, or nothing shares turns out
	turnAt time.Time        // when it had its turn; zero: at once
	waited time.Duration    // for its turn

	presented bool // whether webhooks and policies were asked already, about what was sent
}

// long says whether the request lasts as long as it likes: a watch or a stream.
func (q *request) long() bool {
	if !q.Resource {
		return strings.HasPrefix(q.Path, "/debug/pprof/")
	}
	switch q.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return q.Verb == "watch" || q.lasts
}

// upgrades says whether the request may become a stream to a server that serves a part of the API. It is one when that
// server has agreed, and until then a request like others.
func (q *request) upgrades() bool { return q.aggregated != nil && q.http.Header.Get("Upgrade") != "" }

// key is the object's key below its kind's.
func (q *request) key() string {
	if q.served.Namespaced {
		return q.Namespace + "/" + q.Name
	}
	return q.Name
}

// read says what a request asks for. Paths are /api/v1/… and /apis/GROUP/VERSION/…,
// after which come [watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func (s *Server) read(w http.ResponseWriter, r *http.Request) *request {
	q := &request{http: r, w: w, query: r.URL.Query(), room: s.room}
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
		q.aggregated = s.serving.Load().document(q.Path)
		return q
	}
	q.Resource = true
	if parts[0] == "watch" && len(parts) > 1 {
		q.watches, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		q.Namespace = parts[1]
		if sub := len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"); len(parts) > 2 && !sub {
			parts, q.inside = parts[2:], true
		}
	}
	q.GroupVersionResource.Resource = parts[0]
	if len(parts) > 1 {
		q.Name, q.named = parts[1], true
	}
	if len(parts) > 2 {
		q.Subresource = parts[2]
	}
	if len(parts) > 3 {
		// Only what is behind a proxy has more: its path is taken as it was sent.
		if _, after, ok := strings.Cut(r.URL.Path, "/"+q.Name+"/"+q.Subresource+"/"); ok {
			q.rest = "/" + after
		}
	} else if q.Subresource == "proxy" && strings.HasSuffix(r.URL.Path, "/") {
		q.rest = "/"
	}
	q.deep = len(parts) > 3
	q.find(s)
	q.verb()
	return q
}

// find looks up what is served of what the path names.
func (q *request) find(s *Server) {
	serving := s.serving.Load()
	q.served, q.known = serving.resources[q.GroupVersionResource]
	if !q.known {
		q.aggregated = serving.aggregated[q.GroupVersion()]
	}
	if q.known {
		q.cache = s.cache.Resource(q.served.GR())
		if q.deep && q.Subresource != "proxy" {
			q.known = false
		}
	}
}

// mostToName is how long a field selector may be that is read before it is known who asks.
const mostToName = 4 << 10

// verb turns the method into what is done to the resource.
func (q *request) verb() {
	q.FieldSelector, q.LabelSelector = q.query.Get("fieldSelector"), q.query.Get("labelSelector")
	if q.watches {
		q.Verb = "watch"
		return
	}
	switch q.http.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case q.Name != "":
			q.Verb = "get"
		case truth(q.query, "watch"):
			q.Verb = "watch"
		default:
			q.Verb = "list"
		}
		// A list of one name is authorized as what it is.
		if q.Name == "" && q.FieldSelector != "" && len(q.FieldSelector) <= mostToName {
			if name, ok := nameSelected(q.FieldSelector); ok && len(content.IsPathSegmentName(name)) == 0 {
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

// convert puts entries in the version that the client speaks into their places. Metadata
// is the same in all of them: whoever wants no more, as the garbage collector, does not
// depend on a webhook.
func (q *request) convert(entries []*cache.Entry) error {
	if !q.converts() {
		return nil
	}
	return cache.Convert(q.http.Context(), entries, q.served.Kind)
}

// converts says whether what is stored may be in another version than the client wants.
func (q *request) converts() bool {
	return q.served.Untyped != nil && len(q.served.Untyped.Family.Versions) > 1 &&
		q.media.As != "PartialObjectMetadata" &&
		q.media.As != "PartialObjectMetadataList"
}

// kind is the version of the kind that is stored.
func (q *request) kind() *kinds.Kind {
	if q.served.Untyped != nil {
		return q.served.Untyped.Family.Stored
	}
	return q.served.Kind
}

// gr is the resource as errors name it.
func (q *request) gr() schema.GroupResource { return q.GroupVersionResource.GroupResource() }
