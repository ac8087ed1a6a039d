package write

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/wire"
)

// versions returns the versions in which the object of a write is served, the kind's own first.
func (w *write) versions() []wire.Served {
	k := w.q.Served.Kind
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
func (w *write) Served() []api.Version {
	list := []api.Version{{Kind: w.q.Served.Version(), Resource: w.q.Served.Name()}}
	for _, s := range w.versions() {
		if v := (api.Version{Kind: s.Version(), Resource: s.Name()}); v != list[0] {
			list = append(list, v)
		}
	}
	return list
}

func (w *write) version(v api.Version) (wire.Served, error) {
	for _, s := range w.versions() {
		if s.Version() == v.Kind {
			return s, nil
		}
	}
	return wire.Served{}, fmt.Errorf("%s is not served as %s", w.q.Served.GVK, v.Kind)
}

// To implements api.Versions.
func (w *write) To(ctx context.Context, obj runtime.Object, v api.Version) (runtime.Object, error) {
	s, err := w.version(v)
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
func (w *write) From(ctx context.Context, obj runtime.Object, v api.Version) (runtime.Object, error) {
	s, err := w.version(v)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && s.Untyped != nil {
		if _, err := s.Untyped.Accept(u); err != nil { // drops fields that the schema does not have
			return nil, err
		}
		s.Default(u)
		made, err := s.Untyped.Family.Convert(ctx, []*unstructured.Unstructured{u}, w.q.Served.Kind)
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
