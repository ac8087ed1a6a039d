package kind

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Untyped holds the functions of one version of a kind with unstructured objects.
type Untyped struct {
	Family *Family
	// Accept normalizes an object from a client: it parses the metadata, drops fields that the schema does not have,
	// and fills in defaults. It returns the dropped fields.
	Accept func(obj *unstructured.Unstructured) (unknown []string, err error)
	// Read converts a stored object to this version. The object is in this version, or in one that differs only in its
	// name.
	Read func(obj *unstructured.Unstructured)
	// Complete returns the object with the defaults that apply to all reads, including those of the status, which
	// writes do not set. It does not change its argument, and returns it if no default is missing.
	Complete func(obj *unstructured.Unstructured) *unstructured.Unstructured
	// Schema returns the version's schema in OpenAPI 3, or 2.
	Schema func(v3 bool) (map[string]any, error)
}

// Family holds the versions of such a kind. Their objects are stored once.
type Family struct {
	Stored   *Kind   // the storage version
	Versions []*Kind // all declared versions
	Served   []*Kind // the served versions, the preferred one first
	// CallWebhook calls the conversion webhook. nil means that versions differ only in their names and schemas. The
	// result is returned as the webhook sent it.
	CallWebhook func(ctx context.Context, objs []*unstructured.Unstructured,
		to *Kind) ([]*unstructured.Unstructured, error)
	// IsClosed means that no objects may be created any more.
	IsClosed atomic.Bool
}

// Version returns a version by its name, or nil.
func (f *Family) Version(version string) *Kind {
	i := slices.IndexFunc(f.Versions, func(k *Kind) bool { return k.GVK.Version == version })
	if i < 0 {
		return nil
	}
	return f.Versions[i]
}

// Convert returns objects converted to a version. The results belong to the caller, and the arguments stay unchanged.
func (f *Family) Convert(
	ctx context.Context,
	objs []*unstructured.Unstructured,
	to *Kind,
) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	var others []int
	var requests []*unstructured.Unstructured
	for i, obj := range objs {
		if f.CallWebhook == nil || obj.GroupVersionKind() == to.GVK {
			out[i] = obj.DeepCopy()
			continue
		}
		others, requests = append(others, i), append(requests, obj)
	}
	if len(requests) > 0 {
		made, err := f.CallWebhook(ctx, requests, to)
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
