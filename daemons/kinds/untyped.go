package kinds

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Untyped is what is known of one version of a kind whose objects are unstructured.
type Untyped struct {
	Family *Family
	// Accept brings what a client sent into shape: metadata is read, fields that the
	// schema does not have are dropped and returned, defaults filled in.
	Accept func(obj *unstructured.Unstructured) (unknown []string, err error)
	// Read brings an object that was written before, in this version or one that differs
	// in nothing but its name, into the shape of this one.
	Read func(obj *unstructured.Unstructured)
	// Complete returns the object with the defaults that hold for whatever is read, also where a write has no say:
	// those of the status. What is given stays as it is, and is returned if it lacks none.
	Complete func(obj *unstructured.Unstructured) *unstructured.Unstructured
	// Schema is the version's schema in the terms of OpenAPI 3, or 2.
	Schema func(v3 bool) (map[string]any, error)
}

// Family is the versions of such a kind, whose objects are stored once.
type Family struct {
	Stored   *Kind   // what is written
	Versions []*Kind // all that are declared
	Served   []*Kind // those that are served, the preferred one first
	// Converts asks the program that knows how versions differ. Nil: they differ in
	// their names and schemas alone. What is returned is as that program made it.
	Converts func(ctx context.Context, objs []*unstructured.Unstructured,
		to *Kind) ([]*unstructured.Unstructured, error)
	// Closed says that no objects may be made any more.
	Closed atomic.Bool
}

// Of returns the version of a name, nil if it is not declared.
func (f *Family) Of(version string) *Kind {
	i := slices.IndexFunc(f.Versions, func(k *Kind) bool { return k.GVK.Version == version })
	if i < 0 {
		return nil
	}
	return f.Versions[i]
}

// In returns objects in a version. They are the caller's; those given stay as they are.
func (f *Family) In(
	ctx context.Context,
	objs []*unstructured.Unstructured,
	to *Kind,
) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	var others []int
	var asked []*unstructured.Unstructured
	for i, obj := range objs {
		if f.Converts == nil || obj.GroupVersionKind() == to.GVK {
			out[i] = obj.DeepCopy()
			continue
		}
		others, asked = append(others, i), append(asked, obj)
	}
	if len(asked) > 0 {
		made, err := f.Converts(ctx, asked, to)
		if err != nil {
			return nil, err
		}
		for n, i := range others {
			out[i] = made[n]
		}
	}
	for i, obj := range out {
		if objs[i].GroupVersionKind() != to.GVK {
			to.Untyped.Read(obj)
		}
	}
	return out, nil
}
