package ownership

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Merger merges what a manager declares into a live object, which it may change.
type Merger interface {
	Apply(live, declared runtime.Object, manager string, force bool) (runtime.Object, error)
}

// linearMerger merges large objects in linear time. Where linearMerge is unsupported, the library does the work, unless
// the objects are too large for it.
type linearMerger struct {
	library     *managedfields.FieldManager
	types       managedfields.TypeConverter
	objects     runtime.ObjectConvertor
	defaults    defaulter
	version     schema.GroupVersionKind
	hub         schema.GroupVersion
	subresource string
	unowned     [][]string // fields that the write cannot change
	now         func() time.Time
}

// unmanagedFields are the fields that nothing owns.
var unmanagedFields = [][]string{
	{"apiVersion"}, {"kind"}, {"metadata"}, {"metadata", "name"}, {"metadata", "namespace"},
	{"metadata", "creationTimestamp"}, {"metadata", "selfLink"}, {"metadata", "uid"}, {"metadata", "clusterName"},
	{"metadata", "generation"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"},
}

// Apply implements Merger.
func (l *linearMerger) Apply(
	live, declared runtime.Object, manager string, force bool,
) (runtime.Object, error) {
	if out, ok, err := l.apply(live, declared, manager, force); ok {
		return out, err
	}
	if max(largeEntries(live), largeEntries(declared)) > maxLibraryEntries {
		return nil, errTooLarge
	}
	return l.library.Apply(live, declared, manager, force)
}

// maxLibraryEntries is the number of entries of large lists and maps up to which the library merges an object. It takes
// quadratic time.
const maxLibraryEntries = 20_000

// errTooLarge is the error of a merge that is left to the library, and would take too long.
var errTooLarge = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object with more than %d entries in long "+
	"lists and maps can be applied only if it is valid, its lists have no duplicates, the keys of their items and all "+
	"names are plain text, and all managers of its fields use the same version", maxLibraryEntries))

// apply returns false if the library has to do the work. Then it has changed neither object.
func (l *linearMerger) apply(live, declared runtime.Object, manager string, force bool) (runtime.Object, bool, error) {
	config, ok := declared.(*unstructured.Unstructured)
	if !ok || config.GroupVersionKind() != l.version || config.GetManagedFields() != nil {
		return nil, false, nil
	}
	entries, ok := l.readEntries(live, manager)
	if !ok || manager == "kubectl" && (hasLastApplied(live) || hasLastApplied(declared)) {
		return nil, false, nil
	}
	fields, ok := l.liveFields(live)
	if !ok {
		return nil, false, nil
	}
	types, err := l.types.ObjectToTyped(emptyObject(l.version))
	if err != nil {
		return nil, false, nil
	}
	m := &linearMerge{
		schema: types.Schema(), tracksChanges: len(entries.others) > 0, elements: map[string]string{},
	}
	out, owned, changed := m.merge(types.TypeRef(), liveValue{fields, true}, config.Object)
	if m.isUnsupported || !entries.readOthers(objectType{types}.value(fields)) {
		return nil, false, nil
	}
	for _, path := range l.unowned {
		owned, changed = owned.without(path, true), changed.without(path, true)
	}
	declaredFields := owned.clone()
	for _, path := range unmanagedFields {
		owned = owned.without(path, false)
	}
	change, ok := entries.setOwn(owned, declaredFields, changed)
	if !ok {
		return nil, false, nil
	}
	if change.last != nil {
		if out, ok = l.prune(objectType{types}, fields, out, &change); !ok {
			return nil, false, nil
		}
		m.isChanged = !value.Equals(value.NewValueInterface(fields), value.NewValueInterface(out))
	}
	if err := entries.removeChanged(change, force); err != nil {
		return nil, true, err
	}
	if !m.isChanged {
		return withEntries(live, entries.all()), true, nil
	}
	entries.own.Time = &metav1.Time{Time: l.now().UTC()}
	merged, ok := l.toHub(out)
	return withEntries(merged, entries.all()), ok, nil
}

func emptyObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind)
	return u
}

func hasLastApplied(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err != nil || m.GetAnnotations()[corev1.LastAppliedConfigAnnotation] != ""
}

// withEntries returns an object with other managed fields.
func withEntries(obj runtime.Object, entries []metav1.ManagedFieldsEntry) runtime.Object {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(entries)
	}
	return obj
}

// liveFields returns the fields of the live object, as the version of the request has them, without managed fields.
func (l *linearMerger) liveFields(live runtime.Object) (map[string]any, bool) {
	versioned, err := l.objects.ConvertToVersion(live, l.version.GroupVersion())
	if err != nil {
		return nil, false
	}
	var fields map[string]any
	if u, ok := versioned.(*unstructured.Unstructured); ok {
		fields = maps.Clone(u.Object)
		if metadata, ok := fields["metadata"].(map[string]any); ok {
			fields["metadata"] = maps.Clone(metadata)
		}
	} else if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(
		withEntries(ShallowCopy(versioned), nil)); err != nil {
		return nil, false
	}
	unstructured.RemoveNestedField(fields, "metadata", "managedFields")
	return fields, true
}

// toHub converts the fields of a merged object to an object of the version in which it is stored, with defaults.
func (l *linearMerger) toHub(fields any) (runtime.Object, bool) {
	object, ok := fields.(map[string]any)
	if !ok {
		return nil, false
	}
	versioned, err := l.objects.ConvertToVersion(&unstructured.Unstructured{Object: object}, l.version.GroupVersion())
	if err != nil {
		return nil, false
	}
	l.defaults.Default(versioned)
	stored, err := l.objects.ConvertToVersion(versioned, l.hub)
	return stored, err == nil
}
