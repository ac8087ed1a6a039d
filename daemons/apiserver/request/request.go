// Package request holds what all parts of the API server know of a request: the request itself, the answer that is
// being built, and the errors that the API returns.
package request

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// MaxBody is the maximum size of a request body, in bytes. It is upstream's limit.
const MaxBody = 3 << 20

// Request is a request: what its path, query and headers name, and the user who sent it. The stages of the server's
// pipeline complete it. After that it does not change: code that needs a request for another object takes a copy from
// one of the With methods. What changes while the request is answered is in Answer.
type Request struct {
	api.Request
	HTTP  *http.Request // nil for the server's own writes
	Query url.Values
	User  api.User
	Form
	Target
	Media      wire.Media
	IsInternal bool    // whether this is a request of the server to itself; clients cannot set it
	Aggregated Handler // answers for an aggregated server; nil if this server answers
	Answer     *Answer
}

// Handler answers a request. An error is the answer, unless it is ErrAnswered.
type Handler func(q *Request) error

// Form describes the form of a request's path.
type Form struct {
	HasName          bool   // whether the path names an object
	HasNamespace     bool   // whether the path has a namespace
	IsBelowWatch     bool   // whether the path is below /watch/
	HasExtraSegments bool   // whether the path has more segments after the subresource
	ProxyPath        string // path after a proxy subresource, with its slash
}

// Target is the resource that a request's path names.
type Target struct {
	Served   wire.Served
	IsServed bool            // whether that resource is served
	Cache    *cache.Resource // nil for virtual kinds
}

// NewOwn returns a request of the server to itself, which updates an object. It skips authentication and authorization.
func NewOwn(user api.User, t Target, subresource, namespace, name string) *Request {
	q := &Request{User: user, Target: t, Answer: &Answer{}, IsInternal: true}
	q.Resource, q.Verb, q.GroupVersionResource = true, "update", t.Served.Name()
	q.Subresource, q.Namespace, q.Name = subresource, namespace, name
	return q
}

// IsLongRunning reports whether the request has no time limit, because it is a watch or a stream.
func (q *Request) IsLongRunning() bool {
	if !q.Resource {
		return strings.HasPrefix(q.Path, "/debug/pprof/")
	}
	return q.IsStream() || q.Verb == "watch" || q.Answer.isStream
}

// IsStream reports whether the request is for a subresource whose backend chooses the form of the response.
func (q *Request) IsStream() bool {
	switch q.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// CanUpgrade reports whether the request may become a stream to an aggregated server. Until that server agrees, it is
// an ordinary request.
func (q *Request) CanUpgrade() bool { return q.Aggregated != nil && q.HTTP.Header.Get("Upgrade") != "" }

// Key returns the object's key, relative to the prefix of its kind.
func (q *Request) Key() string {
	if q.Served.Namespaced {
		return q.Namespace + "/" + q.Name
	}
	return q.Name
}

// WithObject returns a copy of the request for another object of the same resource.
func (q *Request) WithObject(namespace, name string) *Request {
	one := *q
	one.Namespace, one.Name = namespace, name
	return &one
}

// WithTarget returns a copy of the request for an object of another resource.
func (q *Request) WithTarget(t Target, subresource, namespace, name string) *Request {
	one := q.WithObject(namespace, name)
	one.Target, one.GroupVersionResource, one.Subresource = t, t.Served.Name(), subresource
	return one
}

// WithContext returns a copy of the request with another context.
func (q *Request) WithContext(ctx context.Context) *Request {
	one := *q
	one.HTTP = q.HTTP.WithContext(ctx)
	return &one
}

// Convert replaces entries by entries in the version of the request. Metadata is the same in all versions. So a client
// that wants only metadata, such as the garbage collector, does not depend on a webhook.
func (q *Request) Convert(entries []*cache.Entry) error {
	if !q.NeedsConversion() {
		return nil
	}
	return cache.Convert(q.HTTP.Context(), entries, q.Served.Kind)
}

// NeedsConversion reports whether entries may be stored in another version than the client wants.
func (q *Request) NeedsConversion() bool {
	return q.Served.Untyped != nil && len(q.Served.Untyped.Family.Versions) > 1 &&
		q.Media.Shape != "PartialObjectMetadata" &&
		q.Media.Shape != "PartialObjectMetadataList"
}

// StoredKind returns the version of the kind that is stored.
func (q *Request) StoredKind() *kinds.Kind {
	if q.Served.Untyped != nil {
		return q.Served.Untyped.Family.Stored
	}
	return q.Served.Kind
}

// GroupResource returns the resource for error messages.
func (q *Request) GroupResource() schema.GroupResource { return q.GroupVersionResource.GroupResource() }

// LiveEntry returns the object that the request names, from the cache. An object that is stored but cannot be read is
// not treated as missing.
func (q *Request) LiveEntry() (*cache.Entry, error) {
	if err := q.Cache.ReadError(q.Key()); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	e := q.Cache.Get(q.Key())
	if e == nil {
		return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	return e, nil
}

// WriteEntry answers with an object in the version that the client requested.
func (q *Request) WriteEntry(code int, e *cache.Entry) error {
	one := []*cache.Entry{e}
	if err := q.Convert(one); err != nil {
		return err
	}
	return q.Media.WriteEntry(q.Answer, code, q.Served, one[0], q.IncludeObject())
}
