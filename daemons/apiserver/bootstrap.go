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
)

// manager is how the server's own writes are told from others'.
const manager = "kube-apiserver"

// self is who the server is when it writes by itself.
var self = api.User{Name: api.Server, Groups: []string{api.GroupMasters, api.GroupAuthenticated}}

// namespaces are there from the beginning.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// bootstrap makes what every cluster has. The server is not ready before.
func (s *Server) bootstrap(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		err := s.ensureAll(ctx)
		if err == nil {
			close(s.furnished)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("bootstrap", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

func (s *Server) ensureAll(ctx context.Context) error {
	if err := s.cache.WaitFor(ctx, 1); err != nil {
		return err
	}
	var first []runtime.Object
	for _, name := range namespaces {
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// What is in a namespace can only be made after it.
	for _, objs := range [][]runtime.Object{first, s.o.Bootstrap} {
		revision, err := s.ensureEach(ctx, objs)
		if err != nil {
			return err
		}
		if err := s.cache.WaitFor(ctx, revision); err != nil { // authorizers read there
			return err
		}
	}
	return nil
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
func (s *Server) internalTo(ctx context.Context, served wire.Served, resource schema.GroupVersionResource, namespace, name string) *request {
	r := (&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/"}, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	q := &request{http: r, w: &recorder{ResponseWriter: nowhere{}}, user: self, known: true, internal: true}
	q.served = served
	q.cache = s.cache.Resource(q.served.GR())
	q.Resource, q.Verb, q.GroupVersionResource, q.Namespace, q.Name = true, "update", resource, namespace, name
	return q
}
