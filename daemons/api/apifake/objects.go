// Package apifake implements api.Objects with objects in memory, for tests. As with the API server, revisions rise with
// every change of a resource.
package apifake

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/kube/scheme"
)

// Objects holds objects in memory. Kinds that client-go does not have are stored as unstructured objects.
type Objects struct {
	mu        sync.Mutex
	stored    map[schema.GroupResource]map[string]runtime.Object
	revisions map[schema.GroupResource]int64
}

// New returns a view with objects.
func New(objects ...runtime.Object) *Objects {
	o := &Objects{
		stored:    map[schema.GroupResource]map[string]runtime.Object{},
		revisions: map[schema.GroupResource]int64{},
	}
	for _, obj := range objects {
		o.Put(obj)
	}
	return o
}

// Put adds or replaces an object. Objects of unknown kinds are ignored.
func (o *Objects) Put(obj runtime.Object) {
	gr, key, ok := locate(obj)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stored[gr] == nil {
		o.stored[gr] = map[string]runtime.Object{}
	}
	o.stored[gr][key] = obj
	o.revisions[gr]++
}

// Remove removes an object.
func (o *Objects) Remove(obj runtime.Object) {
	gr, key, ok := locate(obj)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.stored[gr], key)
	o.revisions[gr]++
}

func locate(obj runtime.Object) (schema.GroupResource, string, bool) {
	kinds, _, err := scheme.Scheme().ObjectKinds(obj)
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		kinds, err = []schema.GroupVersionKind{custom.GroupVersionKind()}, nil
	}
	if err != nil {
		return schema.GroupResource{}, "", false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return schema.GroupResource{}, "", false
	}
	plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
	if kinds[0].Kind == "Gateway" {
		plural.Resource = "gateways" // the generic rule would yield gatewaies
	}
	return plural.GroupResource(), m.GetNamespace() + "/" + m.GetName(), true
}

// Get returns an object, and whether it exists.
func (o *Objects) Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.stored[resource][namespace+"/"+name]
	return obj, ok
}

// GetCurrent is Get, because the objects are always current.
func (o *Objects) GetCurrent(
	_ context.Context,
	resource schema.GroupResource,
	namespace, name string,
) (runtime.Object, bool, error) {
	obj, ok := o.Get(resource, namespace, name)
	return obj, ok, nil
}

// List returns the objects of a namespace, sorted by name. An empty namespace means all.
func (o *Objects) List(resource schema.GroupResource, namespace string) []runtime.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keys []string
	for key := range o.stored[resource] {
		if namespace == "" || strings.HasPrefix(key, namespace+"/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	out := make([]runtime.Object, 0, len(keys))
	for _, key := range keys {
		out = append(out, o.stored[resource][key])
	}
	return out
}

// Revision returns a number that rises with every change of the resource.
func (o *Objects) Revision(resource schema.GroupResource) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revisions[resource]
}
