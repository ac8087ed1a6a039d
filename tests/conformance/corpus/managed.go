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

// account lists the owners of the fields of a kind's sample.
type account struct {
	Defaults values `json:"defaults,omitempty"` // the default values of the sample
	// Post is what the client that posts the sample owns, and Apply is what a client that applies it owns. Change is
	// what a client owns that then changes one value by PUT or a merge patch. Kept is what the client that posted the
	// sample owns after that, if it is less than before.
	Post   json.RawMessage `json:"post"`
	Apply  json.RawMessage `json:"apply"`
	Change json.RawMessage `json:"change,omitempty"`
	Kept   json.RawMessage `json:"kept,omitempty"`
}

// account returns the owners that follow from the schema of server-side apply, computed by upstream's code.
func (p *published) account(k *kind) (account, error) {
	m, given := p.manager(k), defaults(k)
	whole := k.whole()
	for _, path := range slices.Sorted(maps.Keys(given)) {
		var err error
		if whole, err = put(whole, path, given[path]); err != nil {
			return account{}, fmt.Errorf("the default of %s: %w", k, err)
		}
	}
	posted, err := p.typed(k, whole)
	if err != nil {
		return account{}, err
	}
	none, err := p.scheme.New(k.gvk)
	if err != nil {
		return account{}, err
	}
	applied, err := m.Apply(none, &unstructured.Unstructured{Object: k.whole()}, "corpus", false)
	if err != nil {
		return account{}, fmt.Errorf("apply a %s: %w", k, err)
	}
	posted = m.UpdateNoErrors(none, posted, "poster")
	out := account{Defaults: maps.Clone(given), Post: owned(posted, "poster"), Apply: owned(applied, "corpus")}
	maps.DeleteFunc(out.Defaults, func(path string, _ any) bool { return slices.Contains(now, path) })
	if k.Change.Path == "" {
		return out, nil
	}
	change, err := put(whole, k.Change.Path, k.Change.Value)
	if err != nil {
		return account{}, fmt.Errorf("change a %s: %w", k, err)
	}
	changed, err := p.typed(k, change)
	if err != nil {
		return account{}, err
	}
	entries, err := meta.Accessor(posted)
	if err != nil {
		return account{}, err
	}
	if to, err := meta.Accessor(changed); err == nil {
		to.SetManagedFields(entries.GetManagedFields())
	}
	changed = m.UpdateNoErrors(posted, changed, "changer")
	out.Change = owned(changed, "changer")
	if kept := owned(changed, "poster"); string(kept) != string(out.Post) {
		out.Kept = kept
	}
	return out, nil
}

func (p *published) typed(k *kind, o map[string]any) (runtime.Object, error) {
	into, err := p.scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.decoder.Decode(encode(o), &k.gvk, into); err != nil {
		return nil, fmt.Errorf("a sample of %s: %w", k, err)
	}
	return into, nil
}

// owned returns the fields of a manager. It is an empty object if there are none.
func owned(o runtime.Object, manager string) json.RawMessage {
	accessor, err := meta.Accessor(o)
	if err != nil {
		panic(fmt.Sprintf("an object has no metadata: %v", err))
	}
	i := slices.IndexFunc(
		accessor.GetManagedFields(),
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager },
	)
	if i < 0 {
		return json.RawMessage("{}")
	}
	return accessor.GetManagedFields()[i].FieldsV1.GetRawBytes()
}
