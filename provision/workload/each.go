package workload

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// This file lets other programs apply objects with the same engine: as another field manager, object by object, and
// without the state of `clusterctl apply`. The caller decides about order, deletion and ownership.

// NewLive returns a client that applies objects as a field manager of its own. It sends nothing yet.
func NewLive(cfg *rest.Config, manager string) (*Live, error) {
	l, err := newLive(cfg)
	if err != nil {
		return nil, err
	}
	l.manager, l.unchanged.hasChangingDeclarations = manager, true
	return l, nil
}

// WithLive returns the object with the live one, which the caller has just read. It is not read again.
func (d Desired) WithLive(live *unstructured.Unstructured) Desired {
	d.read = live
	return d
}

// Outcome is what was done to an object, or what would be done.
type Outcome struct {
	plan.Object
	Err  error                      // the object was not applied
	Live *unstructured.Unstructured // the object as it is now; nil if it does not exist or if that is not known
}

// NewDesired returns an object to apply. canAdopt lets it be applied over an object that another client has created.
func NewDesired(address string, o *unstructured.Unstructured, canAdopt bool) Desired {
	return Desired{Address: address, Object: o, CanAdopt: canAdopt}
}

// CompareEach returns what ApplyEach would do, by dry runs. Objects that are refused only because an object of the same
// call is missing have no error. The error is about the API as a whole.
func (l *Live) CompareEach(ctx context.Context, desired []Desired) ([]Outcome, error) {
	entries, failed := make([]plan.Object, len(desired)), make([]error, len(desired))
	lives := make([]*unstructured.Unstructured, len(desired))
	err := l.each(ctx, desired, func(ctx context.Context, i int, d Desired, existing *listedObjects) error {
		var err error
		entries[i], err = l.tryApply(ctx, d, existing)
		if isRefusal(err) {
			failed[i], err = err, nil
			return nil
		}
		if err != nil {
			return err
		}
		lives[i], err = existing.get(ctx, l.connection, d.reference())
		return err
	})
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(desired))
	for i := range desired {
		outcomes[i] = Outcome{Object: entries[i], Live: lives[i]}
	}
	for _, r := range unresolvedRefusals(desired, entries, failed) {
		outcomes[r.index].Err = r.Err
	}
	return outcomes, nil
}

// ApplyEach applies objects that do not depend on each other. It writes only those that a dry run shows to differ. The
// error is about the API as a whole.
func (l *Live) ApplyEach(ctx context.Context, desired []Desired) ([]Outcome, error) {
	outcomes := make([]Outcome, len(desired))
	err := l.each(ctx, desired, func(ctx context.Context, i int, d Desired, existing *listedObjects) error {
		o, err := l.applyOnce(ctx, &d, existing)
		if meta.IsNoMatchError(err) { // the kind may have been defined a moment ago
			l.mapper.Reset()
			o, err = l.applyOnce(ctx, &d, nil)
		}
		outcomes[i] = Outcome{Object: o, Live: d.live}
		switch {
		case isRefusal(err):
			outcomes[i].Err = newRefusal(d, err).Err
		case errors.As(err, new(deletingError)) || apierrors.IsConflict(err):
			outcomes[i].Err = err
		default:
			return err
		}
		return nil
	})
	return outcomes, err
}

// each calls f for every object, maxParallel at a time.
func (l *Live) each(ctx context.Context, desired []Desired,
	f func(ctx context.Context, i int, d Desired, existing *listedObjects) error) error {
	var unknown []Desired
	for _, d := range desired {
		if d.read == nil {
			unknown = append(unknown, d)
		}
	}
	existing, err := l.listReadable(ctx, references(unknown))
	if err != nil {
		return err
	}
	existing = existing.with(desired)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, d := range desired {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(ctx, i, d, existing)
		})
	}
	return g.Wait()
}

// FindEach returns the live objects, nil for those that do not exist. A kind that the API does not serve is an error,
// because it proves nothing about its objects.
func (l *connection) FindEach(ctx context.Context, list []state.Object) ([]*unstructured.Unstructured, error) {
	for _, o := range list {
		gk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
		_, served, err := l.IsNamespaced(gk)
		if err != nil {
			return nil, err
		}
		if !served {
			return nil, fmt.Errorf("the API does not serve %s of %s", o.Kind, o.APIVersion)
		}
	}
	existing, err := l.listReadable(ctx, list)
	if err != nil {
		return nil, err
	}
	return l.getAll(ctx, list, existing)
}

// listReadable is like listExisting. A user that may not list objects reads them one by one.
func (l *connection) listReadable(ctx context.Context, objects []state.Object) (*listedObjects, error) {
	existing, err := l.listExisting(ctx, objects)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return existing, err
}

// IsNamespaced reports whether objects of a kind have a namespace, and whether the API serves the kind.
func (l *connection) IsNamespaced(kind schema.GroupKind) (namespaced, served bool, err error) {
	mapping, err := l.mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		l.mapper.Reset() // the kind may have been defined a moment ago
		mapping, err = l.mapper.RESTMapping(kind)
	}
	if meta.IsNoMatchError(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true, nil
}

// ResourceOf returns the resource of a kind. It reports whether the API is known to serve the kind.
func (l *connection) ResourceOf(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	mapping, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupVersionResource{}, false
	}
	return mapping.Resource, true
}

// DeleteObject requests the deletion of an object with a UID. An object that is gone, or that has another UID, is not
// an error.
func (l *Live) DeleteObject(ctx context.Context, o state.Object, uid types.UID) error {
	client, err := l.client(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), o.Namespace)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	err = client.Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &background,
		Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// ForeignManager returns the field manager of an object that was not applied because another client has created it. It
// reports whether this is why an object was not applied.
func ForeignManager(err error) (manager string, ok bool) {
	var foreign foreignError
	ok = errors.As(err, &foreign)
	return foreign.manager, ok
}
