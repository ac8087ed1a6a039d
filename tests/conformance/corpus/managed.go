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

// account is who owns which fields of a kind's sample.
type account struct {
	Defaults values `json:"defaults,omitempty"` // what the sample is given
	// Post is owned by who posts the sample, Apply by who applies it, and Change by who then changes one value by PUT
	// or a merge patch; Kept is what who posted it owns after that, where it is less than before.
	Post   json.RawMessage `json:"post"`
	Apply  json.RawMessage `json:"apply"`
	Change json.RawMessage `json:"change,omitempty"`
	Kept   json.RawMessage `json:"kept,omitempty"`
}

// accounts follow from the schema of server-side apply, by upstream's own keeping of them.
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

// owned are the fields of a manager; none: an empty object.
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
