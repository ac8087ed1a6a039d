package write

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/wire"
)

// servedVersions converts between the versions of the object of a write. It has the version of the request.
type servedVersions struct{ requested wire.Served }

// all returns the versions in which the object is served, the kind's own first.
func (v *servedVersions) all() []wire.Served {
	k := v.requested.Kind
	list := []wire.Served{{Kind: k}}
	for i := range k.Aliases {
		list = append(list, wire.Served{Kind: k, Alias: &k.Aliases[i]})
	}
	if k.Untyped != nil {
		for _, other := range k.Untyped.Family.Served {
			if other != k {
				list = append(list, wire.Served{Kind: other})
			}
		}
	}
	return list
}

// Served implements api.Versions.
func (v *servedVersions) Served() []api.Version {
	list := []api.Version{{Kind: v.requested.Version(), Resource: v.requested.Name()}}
	for _, s := range v.all() {
		if other := (api.Version{Kind: s.Version(), Resource: s.Name()}); other != list[0] {
			list = append(list, other)
		}
	}
	return list
}

func (v *servedVersions) version(of api.Version) (wire.Served, error) {
	for _, s := range v.all() {
		if s.Version() == of.Kind {
			return s, nil
		}
	}
	return wire.Served{}, fmt.Errorf("%s is not served as %s", v.requested.GVK, of.Kind)
}

// To implements api.Versions.
func (v *servedVersions) To(ctx context.Context, obj runtime.Object, to api.Version) (runtime.Object, error) {
	s, err := v.version(to)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && s.Untyped != nil {
		made, err := s.Untyped.Family.Convert(ctx, []*unstructured.Unstructured{u}, s.Kind)
		if err != nil {
			return nil, err
		}
		return made[0], nil
	}
	return s.ToServed(obj)
}

// From implements api.Versions. The converted object gets its defaults, so that later readers see a complete object.
func (v *servedVersions) From(ctx context.Context, obj runtime.Object, from api.Version) (runtime.Object, error) {
	s, err := v.version(from)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && s.Untyped != nil {
		if _, err := s.Untyped.Accept(u); err != nil { // drops fields that the schema does not have
			return nil, err
		}
		s.Default(u)
		made, err := s.Untyped.Family.Convert(ctx, []*unstructured.Unstructured{u}, v.requested.Kind)
		if err != nil {
			return nil, err
		}
		return made[0], nil
	}
	hub, err := s.ToStored(obj)
	if err == nil && s.Default != nil {
		s.Default(hub)
	}
	return hub, err
}
