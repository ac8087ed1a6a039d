package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// fieldOwners lists the owners of the fields of a kind's sample.
type fieldOwners struct {
	Defaults pathValues `json:"defaults,omitempty"` // the default values of the sample
	// Post is what the client that posts the sample owns, and Apply is what a client that applies it owns. Change is
	// what a client owns that then changes one value by PUT or a merge patch. Kept is what the client that posted the
	// sample owns after that, if it is less than before.
	Post   json.RawMessage `json:"post"`
	Apply  json.RawMessage `json:"apply"`
	Change json.RawMessage `json:"change,omitempty"`
	Kept   json.RawMessage `json:"kept,omitempty"`
}

// fieldOwners returns the owners that follow from the schema of server-side apply, computed by upstream's code.
func (p *upstreamCode) fieldOwners(k *sampleKind) (fieldOwners, error) {
	m, given := p.manager(k), defaultValues(k)
	whole := k.withMetadata()
	for _, path := range slices.Sorted(maps.Keys(given)) {
		var err error
		if whole, err = withPath(whole, path, given[path]); err != nil {
			return fieldOwners{}, fmt.Errorf("the default of %s: %w", k, err)
		}
	}
	posted, err := p.typedObject(k, whole)
	if err != nil {
		return fieldOwners{}, err
	}
	none, err := p.scheme.New(k.gvk)
	if err != nil {
		return fieldOwners{}, err
	}
	applied, err := m.Apply(none, &unstructured.Unstructured{Object: k.withMetadata()}, "corpus", false)
	if err != nil {
		return fieldOwners{}, fmt.Errorf("apply a %s: %w", k, err)
	}
	posted = m.UpdateNoErrors(none, posted, "poster")
	out := fieldOwners{Defaults: maps.Clone(given), Post: ownedFields(posted, "poster"),
		Apply: ownedFields(applied, "corpus")}
	maps.DeleteFunc(out.Defaults, func(path string, _ any) bool { return slices.Contains(variableDefaults, path) })
	if k.Change.Path == "" {
		return out, nil
	}
	change, err := withPath(whole, k.Change.Path, k.Change.Value)
	if err != nil {
		return fieldOwners{}, fmt.Errorf("change a %s: %w", k, err)
	}
	changed, err := p.typedObject(k, change)
	if err != nil {
		return fieldOwners{}, err
	}
	entries, err := meta.Accessor(posted)
	if err != nil {
		return fieldOwners{}, err
	}
	if to, err := meta.Accessor(changed); err == nil {
		to.SetManagedFields(entries.GetManagedFields())
	}
	changed = m.UpdateNoErrors(posted, changed, "changer")
	out.Change = ownedFields(changed, "changer")
	if kept := ownedFields(changed, "poster"); string(kept) != string(out.Post) {
		out.Kept = kept
	}
	return out, nil
}

func (p *upstreamCode) typedObject(k *sampleKind, o map[string]any) (runtime.Object, error) {
	into, err := p.scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.decoder.Decode(mustEncode(o), &k.gvk, into); err != nil {
		return nil, fmt.Errorf("a sample of %s: %w", k, err)
	}
	return into, nil
}

// ownedFields returns the fields of a manager. It is an empty object if there are none.
func ownedFields(o runtime.Object, manager string) json.RawMessage {
	accessor, err := meta.Accessor(o)
	if err != nil {
		panic(fmt.Sprintf("an object has no metadata: %v", err))
	}
	i := slices.IndexFunc(accessor.GetManagedFields(),
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	if i < 0 {
		return json.RawMessage("{}")
	}
	return accessor.GetManagedFields()[i].FieldsV1.GetRawBytes()
}
