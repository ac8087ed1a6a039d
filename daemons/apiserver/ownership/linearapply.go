package ownership

import (
	"bytes"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"clusterctl/daemons/apiserver/managed"
)

// Merger merges what a manager declares into a live object, which it may change.
type Merger interface {
	Apply(live, declared runtime.Object, manager string, force bool) (runtime.Object, error)
}

// linearMerger merges large objects in linear time. Where linearMerge is unsupported, where the merge fails, and where
// it removes fields, the library does the work.
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
	if out, ok := l.apply(live, declared, manager, force); ok {
		return out, nil
	}
	return l.library.Apply(live, declared, manager, force)
}

// apply returns false if the library has to do the work. Then it has changed neither object.
func (l *linearMerger) apply(live, declared runtime.Object, manager string, force bool) (runtime.Object, bool) {
	config, ok := declared.(*unstructured.Unstructured)
	if !ok || config.GroupVersionKind() != l.version || config.GetManagedFields() != nil {
		return nil, false
	}
	entries, ok := l.readEntries(live, manager)
	if !ok || manager == "kubectl" && (hasLastApplied(live) || hasLastApplied(declared)) {
		return nil, false
	}
	fields, ok := l.liveFields(live)
	if !ok {
		return nil, false
	}
	types, err := l.types.ObjectToTyped(emptyObject(l.version))
	if err != nil {
		return nil, false
	}
	m := &linearMerge{
		schema: types.Schema(), tracksChanges: len(entries.others) > 0, elements: map[string]string{},
	}
	out, owned, changed := m.merge(types.TypeRef(), liveValue{fields, true}, config.Object)
	if m.isUnsupported {
		return nil, false
	}
	for _, path := range l.unowned {
		owned, changed = owned.without(path, true), changed.without(path, true)
	}
	root := merging.AsTypedUnvalidated(value.NewValueInterface(fields), types.Schema(), types.TypeRef())
	if !entries.removeConflicts(changed, root, force) {
		return nil, false
	}
	for _, path := range unmanagedFields {
		owned = owned.without(path, false)
	}
	if !entries.setOwn(owned, m.isChanged, l.now()) {
		return nil, false
	}
	if !m.isChanged {
		return withEntries(live, entries.all()), true
	}
	merged, ok := l.toHub(out)
	return withEntries(merged, entries.all()), ok
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

// ownerEntries are the managed fields of an object during a merge.
type ownerEntries struct {
	own    metav1.ManagedFieldsEntry // the entry of the manager that declares fields
	last   []byte                    // fields that it owned before
	others []metav1.ManagedFieldsEntry
}

// readEntries returns the managed fields of the live object. It returns false if the library would change them.
func (l *linearMerger) readEntries(live runtime.Object, manager string) (*ownerEntries, bool) {
	m, err := meta.Accessor(live)
	if err != nil || len(m.GetManagedFields()) == 0 && m.GetUID() != "" {
		return nil, false
	}
	if manager == "" {
		manager = "unknown"
	}
	entries := &ownerEntries{own: metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: l.subresource,
		APIVersion: l.version.GroupVersion().String(), FieldsType: "FieldsV1",
	}}
	type owner struct {
		manager, subresource string
		operation            metav1.ManagedFieldsOperationType
	}
	seen := map[owner]bool{}
	for _, e := range m.GetManagedFields() {
		if e.APIVersion != entries.own.APIVersion || e.FieldsType != entries.own.FieldsType || e.FieldsV1 == nil ||
			len(e.FieldsV1.Raw) < len(`{"f:":{}}`) ||
			e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate {
			return nil, false
		}
		by := owner{e.Manager, e.Subresource, e.Operation}
		if seen[by] {
			return nil, false
		}
		seen[by] = true
		if e.Manager == manager && e.Operation == entries.own.Operation && e.Subresource == l.subresource {
			entries.own.Time, entries.last = e.Time, e.FieldsV1.Raw
			continue
		}
		entries.others = append(entries.others, e)
	}
	return entries, true
}

// removeConflicts removes changed fields from the entries of other managers. It returns false if there is a conflict
// and the manager does not force it, or if the schema has changed since an entry was written.
func (e *ownerEntries) removeConflicts(changed *fieldTree, live *merging.TypedValue, force bool) bool {
	changes, err := changed.set()
	if err != nil {
		return false
	}
	kept := make([]metav1.ManagedFieldsEntry, 0, len(e.others))
	for _, other := range e.others {
		set, ok := readSet(other.FieldsV1.Raw)
		if !ok {
			return false
		}
		if reconciled, err := merging.ReconcileFieldSetWithSchema(set, live); err != nil || reconciled != nil {
			return false
		}
		if conflict := set.Intersection(changes); !conflict.Empty() {
			if !force {
				return false
			}
			if set = set.Difference(conflict); set.Empty() {
				continue
			}
			raw, err := set.ToJSON()
			if err != nil {
				return false
			}
			other.FieldsV1 = &metav1.FieldsV1{Raw: raw}
		}
		kept = append(kept, other)
	}
	e.others = kept
	return true
}

func readSet(raw []byte) (*fieldpath.Set, bool) {
	set := &fieldpath.Set{}
	err := set.FromJSON(bytes.NewReader(raw))
	return set, err == nil
}

// setOwn sets the fields that the declaring manager owns. It returns false if it owned other fields before, which the
// merge has to remove.
func (e *ownerEntries) setOwn(owned *fieldTree, isChanged bool, now time.Time) bool {
	if owned != nil {
		e.own.FieldsV1 = &metav1.FieldsV1{Raw: owned.encode(nil)}
	}
	if isChanged {
		e.own.Time = &metav1.Time{Time: now.UTC()}
	}
	if e.last == nil || owned != nil && bytes.Equal(e.last, e.own.FieldsV1.Raw) {
		return true
	}
	last, ok := readSet(e.last)
	set, err := owned.set()
	return ok && err == nil && last.Difference(set).Empty()
}

// all returns the entries in the order of managed fields.
func (e *ownerEntries) all() []metav1.ManagedFieldsEntry {
	all := e.others
	if e.own.FieldsV1 != nil {
		all = append(all, e.own)
	}
	if len(all) == 0 {
		return nil
	}
	managed.Sort(all)
	return all
}
