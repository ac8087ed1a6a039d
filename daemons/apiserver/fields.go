package apiserver

import (
	"fmt"
	"maps"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"clusterctl/daemons/apiserver/openapi"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// fieldManagers keep account of who manages which fields, one manager for each kind
// and subresource. They are made when first needed.
type fieldManagers struct {
	s         *Server
	converter func() managedfields.TypeConverter

	mu       sync.Mutex
	managers map[managed]*managedfields.FieldManager
}

type managed struct {
	kind        *kinds.Kind
	alias       *kinds.Alias
	subresource string
}

func (f *fieldManagers) init(s *Server) {
	f.s = s
	f.managers = map[managed]*managedfields.FieldManager{}
	f.converter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(s.scheme) })
}

// warm reads the types' schemas, which the first write would otherwise wait for.
func (f *fieldManagers) warm() { f.converter() }

func (f *fieldManagers) of(s wire.Served, subresource string) (*managedfields.FieldManager, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := managed{s.Kind, s.Alias, subresource}
	if m := f.managers[key]; m != nil {
		return m, nil
	}
	m, err := f.make(s, subresource)
	if err != nil {
		return nil, fmt.Errorf("keep account of the fields of %s: %w", s.GVK.Kind, err)
	}
	f.managers[key] = m
	return m, nil
}

func (f *fieldManagers) make(s wire.Served, subresource string) (*managedfields.FieldManager, error) {
	k := s.Kind
	if k.Untyped == nil && k.GVK.Group != apiextensionsv1.GroupName {
		// Fields are owned under the version that a client writes in.
		return managedfields.NewDefaultFieldManager(f.converter(), spoken{f.s.scheme, k}, defaulter{k}, f.s.scheme,
			s.Version(), k.GVK.GroupVersion(), subresource, resets(k, s.Version().GroupVersion(), subresource))
	}
	// client-go does not know these: how their fields merge is told by what we tell clients.
	models, err := openapi.Models(k)
	if err != nil {
		return nil, err
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, err
	}
	if k.Untyped == nil {
		return managedfields.NewDefaultFieldManager(converter, f.s.scheme, defaulter{k}, f.s.scheme,
			k.GVK, k.GVK.GroupVersion(), subresource, resets(k, k.GVK.GroupVersion(), subresource))
	}
	family := members{k.Untyped.Family}
	return managedfields.NewDefaultCRDFieldManager(converter, family, defaulter{k}, family,
		k.GVK, k.GVK.GroupVersion(), subresource, resets(k, k.GVK.GroupVersion(), subresource))
}

// forget lets the managers of a kind that is not served any more go.
func (f *fieldManagers) forget(k *kinds.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.managers, func(key managed, _ *managedfields.FieldManager) bool {
		return key.kind.Untyped != nil && key.kind.Untyped.Family == k.Untyped.Family
	})
}

// resets says what a write does not change whatever is sent, and so does not own.
func resets(k *kinds.Kind, gv schema.GroupVersion, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	if k.Status == nil {
		return nil
	}
	field := "status"
	if subresource == "status" || subresource == "approval" {
		field = "spec"
	}
	filter := fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie(field)))
	filters := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(gv.String()): filter}
	if k.Untyped != nil {
		for _, v := range k.Untyped.Family.Versions {
			filters[fieldpath.APIVersion(v.GVK.GroupVersion().String())] = filter
		}
	}
	return filters
}

// defaulter fills in what apply's result leaves out.
type defaulter struct{ kind *kinds.Kind }

// Default implements runtime.ObjectDefaulter.
func (d defaulter) Default(obj runtime.Object) {
	if d.kind.Default != nil && obj.GetObjectKind().GroupVersionKind() == d.kind.GVK {
		d.kind.Default(obj)
	}
}

// update returns obj with the fields in which it differs from live managed by manager.
func (f *fieldManagers) update(s wire.Served, subresource string, live, obj runtime.Object, manager string) (runtime.Object, error) {
	m, err := f.of(s, subresource)
	if err != nil {
		return nil, err
	}
	// The field manager takes the account out of what it is given, and changes nothing below.
	live = shallow(live)
	for _, o := range []runtime.Object{live, obj} {
		o.GetObjectKind().SetGroupVersionKind(s.GVK)
	}
	return m.UpdateNoErrors(live, obj, manager), nil
}

// apply merges what a manager declares into live.
func (f *fieldManagers) apply(s wire.Served, subresource string, live, declared runtime.Object, manager string, force bool) (runtime.Object, error) {
	m, err := f.of(s, subresource)
	if err != nil {
		return nil, err
	}
	live = live.DeepCopyObject()
	live.GetObjectKind().SetGroupVersionKind(s.GVK)
	obj, err := m.Apply(live, declared, manager, force)
	if err != nil {
		if _, known := err.(apierrors.APIStatus); !known {
			err = apierrors.NewBadRequest(err.Error())
		}
		return nil, err
	}
	if acc, err := meta.Accessor(obj); err == nil && acc.GetResourceVersion() == "" {
		if was, err := meta.Accessor(live); err == nil {
			acc.SetResourceVersion(was.GetResourceVersion())
		}
	}
	return obj, nil
}

// shallow returns a copy of which the metadata's and type's own fields may be set, and
// nothing that they refer to.
func shallow(obj runtime.Object) runtime.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		to := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
		if metadata, ok := to.Object["metadata"].(map[string]any); ok {
			to.Object["metadata"] = maps.Clone(metadata)
		}
		return to
	}
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(runtime.Object)
}
