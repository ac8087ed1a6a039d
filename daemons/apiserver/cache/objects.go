package cache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Objects returns a view of the cache for authorizers and admission.
func (c *Cache) Objects() api.CurrentObjects { return objectsView{c} }

type objectsView struct{ c *Cache }

func (v objectsView) Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool) {
	r := v.c.Resource(resource)
	if r == nil {
		return nil, false
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	e := r.Get(name)
	if e == nil {
		return nil, false
	}
	obj, err := e.Object()
	return obj, err == nil
}

// currentTimeout limits how long GetCurrent waits for the cache.
const currentTimeout = 5 * time.Second

// GetCurrent waits for the cache only if the object is missing in it.
func (v objectsView) GetCurrent(
	ctx context.Context,
	resource schema.GroupResource,
	namespace, name string,
) (runtime.Object, bool, error) {
	if obj, ok := v.Get(resource, namespace, name); ok {
		return obj, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, currentTimeout)
	defer cancel()
	if _, err := v.c.WaitForCurrent(ctx); err != nil {
		return nil, false, err
	}
	obj, ok := v.Get(resource, namespace, name)
	return obj, ok, nil
}

func (v objectsView) List(resource schema.GroupResource, namespace string) []runtime.Object {
	r := v.c.Resource(resource)
	if r == nil {
		return nil
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	var list []runtime.Object
	r.Snapshot().Ascend(prefix, "", func(e *Entry) bool {
		if obj, err := e.Object(); err == nil {
			list = append(list, obj)
		}
		return true
	})
	return list
}

func (v objectsView) Revision(resource schema.GroupResource) int64 {
	if r := v.c.Resource(resource); r != nil {
		return r.Revision()
	}
	return 0
}
