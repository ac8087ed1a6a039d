package write

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/wire"
)

// policyParams finds the objects from which policies take parameters.
type policyParams struct {
	server Server
	cache  *cache.Cache
}

func (p policyParams) served(gvk schema.GroupVersionKind) (wire.Served, bool) {
	for _, served := range p.server.Resources() {
		if served.Version() == gvk && !served.Virtual {
			return served, true
		}
	}
	return wire.Served{}, false
}

// Scope implements policy.Params.
func (p policyParams) Scope(gvk schema.GroupVersionKind) (namespaced, isKnown bool) {
	served, isKnown := p.served(gvk)
	return isKnown && served.Namespaced, isKnown
}

// Resource implements policy.Params.
func (p policyParams) Resource(gvk schema.GroupVersionKind) (r schema.GroupVersionResource, isKnown bool) {
	served, isKnown := p.served(gvk)
	if !isKnown {
		return r, false
	}
	return served.Name(), true
}

// Param implements policy.Params.
func (p policyParams) Param(
	ctx context.Context,
	gvk schema.GroupVersionKind,
	namespace, name string,
) (runtime.Object, error) {
	found, err := p.find(ctx, gvk, func(served wire.Served, r *cache.Resource) ([]*cache.Entry, error) {
		if served.Namespaced {
			name = namespace + "/" + name
		}
		return []*cache.Entry{r.Get(name)}, r.ReadError(name)
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// Select implements policy.Params.
func (p policyParams) Select(
	ctx context.Context,
	gvk schema.GroupVersionKind,
	namespace string,
	s labels.Selector,
) ([]runtime.Object, error) {
	return p.find(ctx, gvk, func(served wire.Served, r *cache.Resource) ([]*cache.Entry, error) {
		var out []*cache.Entry
		prefix := ""
		if served.Namespaced && namespace != "" {
			prefix = namespace + "/"
		}
		r.Snapshot().Ascend(prefix, "", func(e *cache.Entry) bool {
			if s.Matches(e.Labels) {
				out = append(out, e)
			}
			return true
		})
		return out, r.ReadError(prefix)
	})
}

// find returns the objects that look finds, converted to the version gvk.
func (p policyParams) find(
	ctx context.Context,
	gvk schema.GroupVersionKind,
	look func(wire.Served, *cache.Resource) ([]*cache.Entry, error),
) ([]runtime.Object, error) {
	served, ok := p.served(gvk)
	if !ok {
		return nil, fmt.Errorf("%s is not served", gvk)
	}
	r := p.cache.Resource(served.GR())
	if r == nil {
		return nil, nil
	}
	entries, err := look(served, r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", served.GR(), err)
	}
	entries = slices.DeleteFunc(entries, func(e *cache.Entry) bool { return e == nil })
	if err := cache.Convert(ctx, entries, served.Kind); err != nil {
		return nil, err
	}
	var out []runtime.Object
	for _, e := range entries {
		obj, err := served.DecodeEntry(e)
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return out, nil
}

// typeConverterOf returns the type converter for the object of a write, which defines how its fields merge.
func typeConverterOf(owners *ownership.Managers, a *api.Admission) (managedfields.TypeConverter, error) {
	if v, ok := a.Versions.(*servedVersions); ok {
		return owners.TypeConverter(v.requested.Kind)
	}
	return owners.Converter(), nil
}
