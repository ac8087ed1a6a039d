package ownership

import (
	"bytes"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"

	"clusterctl/daemons/apiserver/managed"
)

// ownerEntries are the managed fields of an object during a merge.
type ownerEntries struct {
	own    metav1.ManagedFieldsEntry // the entry of the manager that declares fields
	last   []byte                    // fields that it owned before
	others []metav1.ManagedFieldsEntry
	sets   []*fieldpath.Set // the fields of others
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

// readOthers reads the fields of the other managers. It returns false if the schema has changed since an entry was
// written.
func (e *ownerEntries) readOthers(live *merging.TypedValue) bool {
	for _, other := range e.others {
		set, ok := readSet(other.FieldsV1.Raw)
		if !ok {
			return false
		}
		if reconciled, err := merging.ReconcileFieldSetWithSchema(set, live); err != nil || reconciled != nil {
			return false
		}
		e.sets = append(e.sets, set)
	}
	return true
}

func readSet(raw []byte) (*fieldpath.Set, bool) {
	set := &fieldpath.Set{}
	err := set.FromJSON(bytes.NewReader(raw))
	return set, err == nil
}

// ownerChange is what a merge changes for the owners of fields.
type ownerChange struct {
	changed *fieldpath.Set // fields that differ from the live object
	removed *fieldpath.Set // fields of the live object that the result does not have
	last    *fieldpath.Set // fields that the manager declared before, if it does not declare all of them again; or nil
	managed *fieldpath.Set // if last is set: the fields that managers own, or that the declaration has
}

// setOwn sets the fields that the declaring manager owns. declared is the same with the fields that nothing owns.
func (e *ownerEntries) setOwn(owned, declared, changed *fieldTree) (change ownerChange, ok bool) {
	if owned != nil {
		e.own.FieldsV1 = &metav1.FieldsV1{Raw: owned.encode(nil)}
	}
	var err error
	if change.changed, err = changed.set(); err != nil {
		return change, false
	}
	change.removed = fieldpath.NewSet()
	if e.last == nil || owned != nil && bytes.Equal(e.last, e.own.FieldsV1.Raw) {
		return change, true
	}
	last, ok := readSet(e.last)
	set, err := declared.set()
	if !ok || err != nil {
		return change, false
	}
	if last.Difference(set).Empty() {
		return change, true
	}
	change.last, change.managed = last, set
	for _, other := range e.sets {
		change.managed = change.managed.Union(other)
	}
	return change, true
}

// removeChanged removes changed and removed fields from the entries of other managers. It returns the error of the
// conflicts if there are any, and the manager does not force them.
func (e *ownerEntries) removeChanged(change ownerChange, force bool) error {
	var found []conflict
	kept := make([]metav1.ManagedFieldsEntry, 0, len(e.others))
	for i, other := range e.others {
		set := e.sets[i]
		lost := set.Intersection(change.changed)
		if !force && !lost.Empty() {
			found = append(found, conflict{other, lost})
		}
		if lost = lost.Union(set.Intersection(change.removed)); !lost.Empty() {
			if set = set.Difference(lost); set.Empty() {
				continue
			}
			raw, err := set.ToJSON()
			if err != nil {
				return err
			}
			other.FieldsV1 = &metav1.FieldsV1{Raw: raw}
		}
		kept = append(kept, other)
	}
	if len(found) > 0 {
		return conflictError(found)
	}
	e.others = kept
	return nil
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
