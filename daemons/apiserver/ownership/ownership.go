// Package ownership tracks which manager owns which fields of an object, for apply and for managedFields.
package ownership

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/managed"
	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/apiserver/openapi"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/libraries"
)

// scaleKind is the kind of scale subresources.
var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// Managers track which manager owns which fields. There is one field manager for each kind and subresource, created at
// its first use.
type Managers struct {
	scheme *runtime.Scheme
	now    func() time.Time
	// Converter returns the type converter of the kinds that client-go knows.
	Converter func() managedfields.TypeConverter
	// Scale returns the field manager for Scale objects of any resource.
	Scale func() (*managedfields.FieldManager, error)

	keys func() managed.Keys
	memo managed.Memo

	mu         sync.Mutex
	managers   map[managerKey]*managedfields.FieldManager
	converters map[*kinds.Kind]managedfields.TypeConverter // kinds that client-go does not know
}

type managerKey struct {
	kind         *kinds.Kind
	alias        *kinds.Alias
	subresource  string
	ordersFields bool // the converter orders the fields of all objects
	sorts        bool // the converter also orders lists, which only comparing allows
}

// New returns the field managers of the kinds in a scheme.
func New(scheme *runtime.Scheme, now func() time.Time) *Managers {
	f := &Managers{
		scheme: scheme, now: now, managers: map[managerKey]*managedfields.FieldManager{},
		converters: map[*kinds.Kind]managedfields.TypeConverter{},
	}
	f.Converter = sync.OnceValue(func() managedfields.TypeConverter {
		parser, err := managed.Schema()
		if err != nil {
			panic(err) // the schema is compiled in
		}
		return orderedConverter{TypeConverter: managedfields.NewSchemeTypeConverter(scheme, parser)}
	})
	f.Scale = sync.OnceValues(f.newScaleManager)
	f.keys = sync.OnceValue(f.listKeys)
	return f
}

// LoadSchemas loads the types' schemas, so that the first write does not have to wait for it.
func (f *Managers) LoadSchemas() { f.keys() }

// listKeys returns the field names that identify the items of lists, over all kinds.
func (f *Managers) listKeys() managed.Keys {
	typed, err := f.Converter().
		ObjectToTyped(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	if err != nil {
		return nil // without schemas there are no managers either
	}
	return managed.KeysOf(typed.Schema())
}

func (f *Managers) managerOf(s wire.Served, subresource string) (*managedfields.FieldManager, error) {
	return f.cachedManager(s, managerKey{kind: s.Kind, alias: s.Alias, subresource: subresource})
}

// MergeManager returns the Merger that merges a declared object into a live object.
func (f *Managers) MergeManager(
	s wire.Served, subresource string, live, declared runtime.Object,
) (Merger, error) {
	if libraries.Selected || !isLarge(declared) && !isLarge(live) {
		return f.managerOf(s, subresource)
	}
	library, err := f.cachedManager(s,
		managerKey{kind: s.Kind, alias: s.Alias, subresource: subresource,
			ordersFields: hasLargeMaps(declared) || hasLargeMaps(live)})
	if err != nil {
		return nil, err
	}
	types, err := f.TypeConverter(s.Kind)
	if err != nil {
		return nil, err
	}
	version, objects, _ := f.converterOf(s)
	return &linearMerger{
		library: library, types: types, objects: objects, defaults: defaulter{s.Kind}, version: version,
		hub: s.Kind.GVK.GroupVersion(), subresource: subresource, unowned: unownedFields(s.Kind, subresource),
		now: f.now,
	}, nil
}

func (f *Managers) cachedManager(s wire.Served, key managerKey) (*managedfields.FieldManager, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.managers[key]; m != nil {
		return m, nil
	}
	m, err := f.newManager(s, key)
	if err != nil {
		return nil, fmt.Errorf("keep account of the fields of %s: %w", s.GVK.Kind, err)
	}
	f.managers[key] = m
	return m, nil
}

func (f *Managers) newManager(s wire.Served, key managerKey) (*managedfields.FieldManager, error) {
	converter, err := f.typeConverterLocked(s.Kind)
	if err != nil {
		return nil, err
	}
	switch {
	case key.sorts:
		converter = sortedConverter{converter, largeMap}
	case key.ordersFields:
		converter = orderedConverter{converter, true}
	}
	return f.newManagerWith(s, converter, key.subresource)
}

func (f *Managers) newManagerWith(
	s wire.Served, converter managedfields.TypeConverter, subresource string,
) (*managedfields.FieldManager, error) {
	k := s.Kind
	version, objects, creater := f.converterOf(s)
	newManager := managedfields.NewDefaultFieldManager
	if k.Untyped != nil {
		newManager = managedfields.NewDefaultCRDFieldManager
	}
	return newManager(converter, objects, defaulter{k}, creater, version, k.GVK.GroupVersion(), subresource,
		resetFields(k, version.GroupVersion(), subresource))
}

// converterOf returns the version under which the fields of a kind are owned, and what converts to and creates objects
// of this version.
func (f *Managers) converterOf(
	s wire.Served,
) (schema.GroupVersionKind, runtime.ObjectConvertor, runtime.ObjectCreater) {
	k := s.Kind
	switch {
	case k.Untyped != nil:
		family := customConverter{k.Untyped.Family}
		return k.GVK, family, family
	case !isClientGoKind(k):
		return k.GVK, f.scheme, f.scheme
	}
	return s.Version(), kindConverter{f.scheme, k}, f.scheme // the version that the client writes in
}

func (f *Managers) newScaleManager() (*managedfields.FieldManager, error) {
	converter, err := f.TypeConverter(&kinds.Kind{GVK: scaleKind,
		New: func() runtime.Object { return &autoscalingv1.Scale{} }})
	if err != nil {
		return nil, err
	}
	return managedfields.NewDefaultFieldManager(converter, f.scheme, defaulter{&kinds.Kind{}}, f.scheme,
		scaleKind, scaleKind.GroupVersion(), "scale", nil)
}

// TypeConverter returns the type converter of a kind, which defines how its fields merge.
func (f *Managers) TypeConverter(k *kinds.Kind) (managedfields.TypeConverter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.typeConverterLocked(k)
}

// typeConverterLocked is like types; the caller holds f.mu.
func (f *Managers) typeConverterLocked(k *kinds.Kind) (managedfields.TypeConverter, error) {
	if k.Untyped == nil && isClientGoKind(k) {
		return f.Converter(), nil
	}
	if converter := f.converters[k]; converter != nil {
		return converter, nil
	}
	// client-go does not know these kinds. The schema that is published to clients defines how their fields merge.
	models, err := openapi.Models(k)
	if err != nil {
		return nil, err
	}
	made, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, err
	}
	f.converters[k] = orderedConverter{TypeConverter: made}
	return f.converters[k], nil
}

// isClientGoKind reports whether client-go knows how a kind's fields merge.
func isClientGoKind(k *kinds.Kind) bool {
	return k.GVK != scaleKind && k.GVK.Group != apiextensionsv1.GroupName && k.GVK.Group != apiregistrationv1.GroupName
}

// RemoveKind removes the field managers of a kind that is not served any more.
func (f *Managers) RemoveKind(k *kinds.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.managers, func(key managerKey, _ *managedfields.FieldManager) bool {
		return key.kind.Untyped != nil && key.kind.Untyped.Family == k.Untyped.Family
	})
	maps.DeleteFunc(f.converters, func(key *kinds.Kind, _ managedfields.TypeConverter) bool {
		return key.Untyped != nil && key.Untyped.Family == k.Untyped.Family
	})
}

// unownedFields returns the paths of the fields that a write cannot change, and so does not own.
func unownedFields(k *kinds.Kind, subresource string) [][]string {
	if k.Status == nil {
		return nil
	}
	unowned := [][]string{{"status"}}
	if subresource == "status" || subresource == "approval" {
		unowned = [][]string{{"spec"}}
	}
	if subresource == "status" {
		if k.Status.KeepsAllMeta {
			unowned = append(unowned, []string{"metadata"})
		}
		for _, name := range k.Status.KeptMeta {
			unowned = append(unowned, []string{"metadata", name})
		}
	}
	return unowned
}

// resetFields returns filters of the unowned fields for all versions of a kind.
func resetFields(k *kinds.Kind, gv schema.GroupVersion, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	paths := unownedFields(k, subresource)
	if paths == nil {
		return nil
	}
	filter := excludeFilter(paths)
	filters := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(gv.String()): filter}
	if k.Untyped != nil {
		for _, v := range k.Untyped.Family.Versions {
			filters[fieldpath.APIVersion(v.GVK.GroupVersion().String())] = filter
		}
	}
	return filters
}

// excludeFilter returns the filter that excludes the fields at some paths.
func excludeFilter(paths [][]string) fieldpath.Filter {
	excluded := fieldpath.NewSet()
	for _, path := range paths {
		var fields fieldpath.Path
		for _, name := range path {
			fields = append(fields, fieldpath.FieldNameElement(name))
		}
		excluded.Insert(fields)
	}
	return fieldpath.NewExcludeSetFilter(excluded)
}

// defaulter sets the defaults of fields that the result of an apply leaves out.
type defaulter struct{ kind *kinds.Kind }

// Default implements runtime.ObjectDefaulter.
func (d defaulter) Default(obj runtime.Object) {
	if d.kind.Default != nil && obj.GetObjectKind().GroupVersionKind() == d.kind.GVK {
		d.kind.Default(obj)
	}
}

// Update returns obj, with manager as the owner of the fields in which it differs from live. before is the cache entry
// of live; nil if there is none.
func (f *Managers) Update(
	s wire.Served,
	subresource string,
	before *cache.Entry,
	live, obj runtime.Object,
	manager string,
) (runtime.Object, error) {
	key, account, remembered := f.memoKey(s, subresource, before, live, obj, manager)
	if remembered {
		if after, ok := f.memo.Get(key, account, f.now()); ok {
			acc, err := meta.Accessor(obj)
			if err == nil {
				acc.SetManagedFields(after)
			}
			return obj, err
		}
	}
	m, err := f.cachedManager(s, managerKey{kind: s.Kind, alias: s.Alias, subresource: subresource,
		sorts: isLarge(live) || isLarge(obj)})
	if err != nil {
		return nil, err
	}
	sortSentFields(live, obj)
	// The field manager removes managedFields from its input, and changes nothing below that.
	live = ShallowCopy(live)
	for _, o := range []runtime.Object{live, obj} {
		o.GetObjectKind().SetGroupVersionKind(s.GVK)
	}
	out := m.UpdateNoErrors(live, obj, manager)
	if acc, err := meta.Accessor(out); err == nil && remembered {
		f.memo.Put(key, account, acc.GetManagedFields())
	}
	return out, nil
}

// maxMemoSize is the size, in bytes, of the largest objects whose result is remembered.
const maxMemoSize = 32 << 10

// memoKey returns the memo key of a write and the managed fields before it. ok is false if the result of the write
// must not be remembered.
func (f *Managers) memoKey(
	s wire.Served,
	subresource string,
	before *cache.Entry,
	live, obj runtime.Object,
	manager string,
) (key managed.Key, account []metav1.ManagedFieldsEntry, ok bool) {
	if s.Alias != nil || s.Untyped != nil || s.GVK.Group == apiextensionsv1.GroupName || len(f.keys()) == 0 {
		return key, nil, false
	}
	old, wasErr := meta.Accessor(live)
	updated, isErr := meta.Accessor(obj)
	if wasErr != nil || isErr != nil {
		return key, nil, false
	}
	w := managed.Write{
		Keys:        f.keys(),
		Kind:        s.GVK.String(),
		Subresource: subresource,
		Manager:     manager,
		Before:      old.GetManagedFields(),
	}
	sent := updated.GetManagedFields()
	if sent != nil && !managed.EqualExceptTimes(sent, w.Before) {
		return key, nil, false // the write changes managedFields itself
	}
	if sent != nil && subresource == "" {
		w.Before = sent // keep the timestamps that were sent
	}
	if before != nil {
		if w.Live = before.JSON(); len(w.Live) > maxMemoSize {
			return key, nil, false
		}
	}
	updated.SetManagedFields(nil)
	defer updated.SetManagedFields(sent)
	err := objectjson.With(obj, func(text []byte) error {
		if w.Next = text; len(text) <= 2*maxMemoSize {
			key, ok = w.Key()
		}
		return nil
	})
	return key, w.Before, ok && err == nil
}

// ShallowCopy returns a shallow copy of an object. The fields of its type and metadata may be set, but not what they
// refer to.
func ShallowCopy(obj runtime.Object) runtime.Object {
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
