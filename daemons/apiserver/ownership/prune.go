package ownership

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// objectType is the type of objects of a version of a kind.
type objectType struct{ *merging.TypedValue }

// value returns the fields of an object as a value of the type.
func (t objectType) value(fields any) *merging.TypedValue {
	return merging.AsTypedUnvalidated(value.NewValueInterface(fields), t.Schema(), t.TypeRef())
}

// sorted is like value, for walks that add all fields to a set. It takes linear time only if fields are visited in
// their order.
func (t objectType) sorted(fields any) *merging.TypedValue {
	sorted := sortedValue{value.NewValueInterface(fields), t.Schema(), t.TypeRef(), largeMap}
	return merging.AsTypedUnvalidated(sorted, t.Schema(), t.TypeRef())
}

// members returns the fields of an object, with the fields that contain them if the schema names these.
func (t objectType) members(fields any) (*fieldpath.Set, error) {
	set, err := t.sorted(fields).ToFieldSet()
	if err != nil {
		return nil, err
	}
	return t.withContainers(set), nil
}

func (t objectType) withContainers(set *fieldpath.Set) *fieldpath.Set {
	return set.EnsureNamedFieldsAreMembers(t.Schema(), t.TypeRef())
}

// without returns an object without some fields.
func (t objectType) without(fields any, removed *fieldpath.Set) any {
	return t.value(fields).RemoveItems(removed).AsValue().Unstructured()
}

// prune removes the fields from a merged object that the manager declared before, does not declare now, and no manager
// owns. It takes the steps of the library's apply, in which a removed container may take fields with it that are then
// restored. It sets the changed and removed fields of change.
func (l *linearMerger) prune(t objectType, live map[string]any, merged any, change *ownerChange) (any, bool) {
	last := t.withContainers(change.last)
	all, err := t.members(merged)
	if err != nil {
		return nil, false
	}
	left, err := t.members(t.without(merged, last))
	if err != nil {
		return nil, false
	}
	owned := t.without(merged, all.Difference(left.Union(t.withContainers(change.managed))))
	if left, err = t.members(owned); err != nil {
		return nil, false
	}
	pruned := t.without(merged, all.Difference(left).Intersection(last))
	if _, ok := pruned.(map[string]any); !ok {
		return nil, false
	}
	comparison, err := t.sorted(live).Compare(t.sorted(pruned))
	if err != nil {
		return nil, false
	}
	comparison = comparison.FilterFields(excludeFilter(l.unowned))
	change.changed, change.removed = comparison.Modified.Union(comparison.Added), comparison.Removed
	return pruned, true
}
