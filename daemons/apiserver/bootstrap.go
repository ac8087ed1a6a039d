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
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/store"
)

// manager is how the server's own writes are told from others'.
const manager = "kube-apiserver"

// self is who the server is when it writes by itself.
var self = api.User{Name: api.Server, Groups: []string{api.GroupMasters, api.GroupAuthenticated}}

// namespaces are there from the beginning.
var namespaces = []string{
	metav1.NamespaceDefault,
	metav1.NamespaceSystem,
	metav1.NamespacePublic,
	corev1.NamespaceNodeLease,
}

// bootstrap makes what every cluster has. The server is not ready before, but does not wait for what is stored and
// cannot be read: the others are as needed, and it may take this very server to mend that one.
func (s *Server) bootstrap(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		left, err := s.ensureAll(ctx)
		if err == nil && !s.isFurnished() {
			close(s.furnished)
		}
		if err == nil && left == nil || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.Warn("bootstrap", "err", err)
		} else {
			s.log.Error("some of what every cluster has is left as it is stored, since that cannot be "+
				"read", "err", left)
			if !passes(left) {
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

// passes says whether something that could not be read may be readable later.
func passes(err error) bool {
	why := (*store.Unreadable)(nil)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(all.Unwrap(), passes)
	}
	return errors.As(err, &why) && why.Passing
}

// ensureAll returns in left what it could not look after since it, or its namespace, cannot be read.
func (s *Server) ensureAll(ctx context.Context) (left, err error) {
	if err := s.cache.WaitFor(ctx, 1); err != nil {
		return nil, err
	}
	var first []runtime.Object
	for _, name := range namespaces {
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// What is in a namespace can only be made after it.
	for _, objs := range [][]runtime.Object{first, s.o.Bootstrap} {
		readable := make([]runtime.Object, 0, len(objs))
		for _, obj := range objs {
			why, err := s.unreadable(obj)
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
		if err := s.cache.WaitFor(ctx, revision); err != nil { // authorizers read there
			return left, err
		}
	}
	why, err := s.ensureRange(ctx)
	return errors.Join(left, why), err
}

// unreadable returns why an object, or its namespace, cannot be read; nil if it can, or is not there.
func (s *Server) unreadable(obj runtime.Object) (why, err error) {
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
			if why := namespaces.Unread(m.GetNamespace()); why != nil {
				return why, nil
			}
		}
	}
	if all := s.cache.Resource(resource.GroupResource()); all != nil {
		if e := all.Get(key); e != nil {
			_, _ = e.Object() // from then on it is known
		}
		return all.Unread(key), nil
	}
	return nil, nil
}

// bootstrapped says what is missing for the server to be ready.
func (s *Server) bootstrapped() error {
	if !s.isFurnished() {
		return errors.New("what every cluster has is not all there yet")
	}
	return nil
}

func (s *Server) isFurnished() bool {
	select {
	case <-s.furnished:
		return true
	default:
		return false
	}
}

// ensureEach ensures objects that do not depend on each other, some at a time, and returns the revision at which all of
// them are there.
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

// ensure creates an object, or completes the one that is there. It returns the revision at which it is as it should.
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
	q := s.internal(ctx, resource, m.GetNamespace(), m.GetName())
	w := &write{s: s, q: q, manager: manager, repeats: true}
	e, err := w.modify(ctx, func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return obj.DeepCopyObject(), nil
		}
		return completed(live, obj), nil
	})
	switch {
	case apierrors.IsConflict(err):
		return s.cache.Current(ctx) // somebody else does the same
	case err != nil:
		return 0, fmt.Errorf("ensure %s %s: %w", resource.Resource, m.GetName(), err)
	}
	return e.Revision, nil
}

// nowhere takes answers that nobody reads.
type nowhere struct{}

func (nowhere) Header() http.Header            { return http.Header{} }
func (nowhere) Write(data []byte) (int, error) { return len(data), nil }
func (nowhere) WriteHeader(int)                {}

// resourceOf returns where an object is served, empty if it is not.
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

// internal is a request that the server makes of itself. It passes all stages of a
// write but those of identity.
func (s *Server) internal(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) *request {
	return s.internalTo(ctx, s.serving.Load().resources[resource], resource, namespace, name)
}

// internalTo is internal for a kind that clients may not see in the version that is meant.
func (s *Server) internalTo(
	ctx context.Context,
	served wire.Served,
	resource schema.GroupVersionResource,
	namespace, name string,
) *request {
	r := (&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/"}, Header: http.Header{},
		Body: http.NoBody}).WithContext(
		ctx,
	)
	q := &request{http: r, w: &recorder{ResponseWriter: nowhere{}}, user: self, known: true, internal: true}
	q.served = served
	q.cache = s.cache.Resource(q.served.GR())
	q.Resource, q.Verb, q.GroupVersionResource, q.Namespace, q.Name = true, "update", resource, namespace, name
	return q
}
