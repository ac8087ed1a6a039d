package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/store"
)

// serverFieldManager is the field manager of the server's own writes.
const serverFieldManager = "kube-apiserver"

// serverUser is the user of the server's own writes.
var serverUser = api.User{Name: api.Server, Groups: []string{api.GroupMasters, api.GroupAuthenticated}}

// bootstrapNamespaces are created by the server when it starts.
var bootstrapNamespaces = []string{
	metav1.NamespaceDefault,
	metav1.NamespaceSystem,
	metav1.NamespacePublic,
	corev1.NamespaceNodeLease,
}

// bootstrap creates the objects that every cluster has. The server is not ready before that. Objects that are stored
// but cannot be read do not delay readiness: the other objects are needed too, and repairing such an object may need
// this server.
func (s *Server) bootstrap(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		left, err := s.ensureAll(ctx)
		if err == nil && !s.isBootstrapped() {
			close(s.bootstrapDone)
		}
		if err == nil && left == nil || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.Warn("bootstrap", "err", err)
		} else {
			s.log.Error("some of what every cluster has is left as it is stored, since that cannot be "+
				"read", "err", left)
			if !isTemporary(left) {
				return nil
			}
			pause = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// isTemporary reports whether an object that could not be read may become readable later.
func isTemporary(err error) bool {
	why := (*store.Unreadable)(nil)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(all.Unwrap(), isTemporary)
	}
	return errors.As(err, &why) && why.Temporary
}

// ensureAll creates or completes the bootstrap objects. left reports the objects that were skipped because they, or
// their namespace, cannot be read.
func (s *Server) ensureAll(ctx context.Context) (left, err error) {
	if err := s.cache.WaitFor(ctx, 1); err != nil {
		return nil, err
	}
	var first []runtime.Object
	for _, name := range bootstrapNamespaces {
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// Namespaces come first, because the other objects are created in them.
	for _, objs := range [][]runtime.Object{first, s.options.Bootstrap} {
		readable := make([]runtime.Object, 0, len(objs))
		for _, obj := range objs {
			why, err := s.readErrorOf(obj)
			if err != nil {
				return left, err
			}
			if why == nil {
				readable = append(readable, obj)
			}
			left = errors.Join(left, why)
		}
		revision, err := s.ensureEach(ctx, readable)
		if err != nil {
			return left, err
		}
		if err := s.cache.WaitFor(ctx, revision); err != nil { // authorizers read from the cache
			return left, err
		}
	}
	why, err := s.ensureRange(ctx)
	return errors.Join(left, why), err
}

// readErrorOf returns why an object, or its namespace, cannot be read. why is nil if it can be read or does not exist.
func (s *Server) readErrorOf(obj runtime.Object) (why, err error) {
	resource, err := s.resourceOf(obj)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	key := m.GetName()
	if m.GetNamespace() != "" {
		key = m.GetNamespace() + "/" + key
		if namespaces := s.cache.Resource(schema.GroupResource{Resource: "namespaces"}); namespaces != nil {
			if why := namespaces.ReadError(m.GetNamespace()); why != nil {
				return why, nil
			}
		}
	}
	if all := s.cache.Resource(resource.GroupResource()); all != nil {
		if e := all.Get(key); e != nil {
			_, _ = e.Object() // decoding it marks the object as unreadable if it is
		}
		return all.ReadError(key), nil
	}
	return nil, nil
}

// checkBootstrapped is the readiness check that fails until the bootstrap objects exist.
func (s *Server) checkBootstrapped() error {
	if !s.isBootstrapped() {
		return errors.New("what every cluster has is not all there yet")
	}
	return nil
}

func (s *Server) isBootstrapped() bool {
	select {
	case <-s.bootstrapDone:
		return true
	default:
		return false
	}
}

// ensureEach ensures independent objects, some of them concurrently, and returns the revision at which all of them
// exist.
func (s *Server) ensureEach(ctx context.Context, objs []runtime.Object) (int64, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	revisions := make([]int64, len(objs))
	for i, obj := range objs {
		g.Go(func() (err error) {
			revisions[i], err = s.ensure(ctx, obj.DeepCopyObject())
			return err
		})
	}
	if err := g.Wait(); err != nil || len(objs) == 0 {
		return 0, err
	}
	return slices.Max(revisions), nil
}

// ensure creates an object, or completes the existing one. It returns the revision at which the object is complete.
func (s *Server) ensure(ctx context.Context, obj runtime.Object) (int64, error) {
	resource, err := s.resourceOf(obj)
	if err != nil {
		return 0, err
	}
	if resource.Empty() {
		return 0, nil // not served
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return 0, err
	}
	q := s.newInternalRequest(ctx, resource, m.GetNamespace(), m.GetName())
	w := &write{s: s, q: q, manager: serverFieldManager, isFrequent: true}
	e, err := w.modify(ctx, func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return obj.DeepCopyObject(), nil
		}
		return completeDefault(live, obj), nil
	})
	switch {
	case apierrors.IsConflict(err):
		return s.cache.WaitForCurrent(ctx) // another server wrote the same object
	case err != nil:
		return 0, fmt.Errorf("ensure %s %s: %w", resource.Resource, m.GetName(), err)
	}
	return e.Revision, nil
}

// discardWriter is a response writer that discards the response.
type discardWriter struct{}

func (discardWriter) Header() http.Header            { return http.Header{} }
func (discardWriter) Write(data []byte) (int, error) { return len(data), nil }
func (discardWriter) WriteHeader(int)                {}

// resourceOf returns the resource that serves an object. It is empty if the object's kind is not served.
func (s *Server) resourceOf(obj runtime.Object) (schema.GroupVersionResource, error) {
	gvks, _, err := s.scheme.ObjectKinds(obj)
	if runtime.IsNotRegisteredError(err) {
		return schema.GroupVersionResource{}, nil
	} else if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	for gvr, served := range s.serving.Load().resources {
		if served.Alias == nil && served.GVK == gvks[0] {
			return gvr, nil
		}
	}
	return schema.GroupVersionResource{}, nil
}

// newInternalRequest returns a request of the server to itself. Such a request skips authentication and authorization,
// and passes all other stages of a write.
func (s *Server) newInternalRequest(ctx context.Context, resource schema.GroupVersionResource, namespace,
	name string) *request.Request {
	return s.newInternalRequestTo(ctx, s.serving.Load().resources[resource], resource, namespace, name)
}

// newInternalRequestTo is like internal, for a kind that clients may not see in that version.
func (s *Server) newInternalRequestTo(
	ctx context.Context,
	served wire.Served,
	resource schema.GroupVersionResource,
	namespace, name string,
) *request.Request {
	r := (&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/"}, Header: http.Header{},
		Body: http.NoBody}).WithContext(
		ctx,
	)
	q := &request.Request{HTTP: r, Answer: &request.Answer{}, User: serverUser, IsInternal: true}
	q.Answer.ResponseWriter = discardWriter{}
	q.Target = request.Target{Served: served, IsServed: true, Cache: s.cache.Resource(served.GR())}
	q.Resource, q.Verb, q.GroupVersionResource, q.Namespace, q.Name = true, "update", resource, namespace, name
	return q
}
