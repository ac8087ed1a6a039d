package write

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// OwnWriter makes the server's own writes. They skip authentication and authorization, and pass all other stages of a
// write.
type OwnWriter struct{ writes *Writes }

// serverFieldManager is the field manager of the server's own writes.
const serverFieldManager = "kube-apiserver"

// serverUser is the user of the server's own writes.
var serverUser = api.User{Name: api.Server, Groups: []string{api.GroupMasters, api.GroupAuthenticated}}

// EnsureEach ensures independent objects, some of them concurrently, and returns the revision at which all of them
// exist.
func (o OwnWriter) EnsureEach(ctx context.Context, objs []runtime.Object) (int64, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	revisions := make([]int64, len(objs))
	for i, obj := range objs {
		g.Go(func() (err error) {
			revisions[i], err = o.Ensure(ctx, obj.DeepCopyObject())
			return err
		})
	}
	if err := g.Wait(); err != nil || len(objs) == 0 {
		return 0, err
	}
	return slices.Max(revisions), nil
}

// Ensure creates an object, or completes the existing one. It returns the revision at which the object is complete.
func (o OwnWriter) Ensure(ctx context.Context, obj runtime.Object) (int64, error) {
	resource, err := o.ResourceOf(obj)
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
	own := Own{Resource: resource, Namespace: m.GetNamespace(), Name: m.GetName(), IsRepeated: true}
	e, err := o.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return obj.DeepCopyObject(), nil
		}
		return o.writes.config.Complete(live, obj), nil
	})
	switch {
	case apierrors.IsConflict(err):
		return o.writes.config.Cache.WaitForCurrent(ctx) // another server wrote the same object
	case err != nil:
		return 0, fmt.Errorf("ensure %s %s: %w", resource.Resource, m.GetName(), err)
	}
	return e.Revision, nil
}

// Own names an object that the server writes itself.
type Own struct {
	Resource        schema.GroupVersionResource
	Subresource     string // status, or empty for the object itself
	Namespace, Name string
	IsRepeated      bool // whether the write is repeated often, so the cache may decide that it is not needed
}

// Change changes an object of the server. next returns the new object for the stored one, which it must not change. The
// stored one is nil if the object does not exist.
func (o OwnWriter) Change(
	ctx context.Context,
	object Own,
	next func(live runtime.Object) (runtime.Object, error),
) (*cache.Entry, error) {
	q := request.NewOwn(serverUser, o.writes.server.Target(object.Resource), object.Subresource, object.Namespace,
		object.Name)
	w := &write{
		s: o.writes, q: q, manager: serverFieldManager, subresource: object.Subresource, isFrequent: object.IsRepeated,
	}
	return w.modify(ctx, next)
}

// Remove deletes an object of the server, of a kind that clients may not see. isGone reports whether nothing delays
// its removal.
func (o OwnWriter) Remove(
	ctx context.Context,
	served wire.Served,
	namespace, name string,
	options *metav1.DeleteOptions,
) (isGone bool, err error) {
	target := request.Target{Served: served, IsServed: true, Cache: o.writes.config.Cache.Resource(served.GR())}
	q := request.NewOwn(serverUser, target, "", namespace, name)
	_, isGone, err = o.writes.deleteObject(ctx, q, q.Key(), options)
	return isGone, err
}

// ResourceOf returns the resource that serves an object. It is empty if the object's kind is not served.
func (o OwnWriter) ResourceOf(obj runtime.Object) (schema.GroupVersionResource, error) {
	gvks, _, err := o.writes.config.Scheme.ObjectKinds(obj)
	if runtime.IsNotRegisteredError(err) {
		return schema.GroupVersionResource{}, nil
	} else if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	for gvr, served := range o.writes.server.Resources() {
		if served.Alias == nil && served.GVK == gvks[0] {
			return gvr, nil
		}
	}
	return schema.GroupVersionResource{}, nil
}
