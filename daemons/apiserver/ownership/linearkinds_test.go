package ownership

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"clusterctl/daemons/apiserver/custom"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// widgetDefinition defines a custom resource whose schema has every kind of field that merges in a way of its own.
const widgetDefinition = `{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
"scope": "Namespaced",
"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
"versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
"schema": {"openAPIV3Schema": {"type": "object", "properties": {
  "spec": {"type": "object", "properties": {
    "count": {"type": "integer", "default": 2},
    "ratio": {"type": "number"},
    "port": {"x-kubernetes-int-or-string": true},
    "note": {"type": "string", "nullable": true},
    "pairs": {"type": "object", "additionalProperties": {"type": "string"}},
    "frozen": {"type": "object", "x-kubernetes-map-type": "atomic",
      "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    "parts": {"type": "object", "additionalProperties": {"type": "object", "properties": {
      "size": {"type": "integer"}, "tags": {"type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "string"}}}}},
    "words": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
    "steps": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object",
      "properties": {"run": {"type": "string"}}}},
    "plain": {"type": "array", "items": {"type": "string"}},
    "ends": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
      "items": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "secure": {"type": "boolean"},
        "paths": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["at"],
          "items": {"type": "object", "required": ["at"], "properties": {
            "at": {"type": "string"}, "to": {"type": "string"}}}}}}},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
      "known": {"type": "integer"}}}}},
  "status": {"type": "object", "properties": {"phase": {"type": "string"},
    "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
      "items": {"type": "object", "required": ["type"], "properties": {
        "type": {"type": "string"}, "state": {"type": "string"}}}}}}}}}}]}}`

// newWidgetKind returns the kind that widgetDefinition declares.
func newWidgetKind(t *testing.T) *kinds.Kind {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal([]byte(widgetDefinition), d); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds.All() {
		if k.GVK.Kind != "CustomResourceDefinition" {
			continue
		}
		k.Default(d)
		k.PrepareCreate(d)
		if errs := k.Validate(d); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	d.Status = custom.NewStatus(d, custom.NamesOf([]*apiextensionsv1.CustomResourceDefinition{d}), time.Now())
	k, err := custom.NewKind(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// mergeTarget is a version of a kind or subresource to which declarations are applied.
type mergeTarget struct {
	served      wire.Served
	subresource string
	linear      *linearMerger
	library     *managedfields.FieldManager
	sorted      *managedfields.FieldManager // its converter sorts objects of any size
	types       *schema.Schema
	root        schema.TypeRef
}

func newMergeTarget(t *testing.T, f *Managers, served wire.Served, subresource string) mergeTarget {
	t.Helper()
	m, err := f.MergeManager(served, subresource, labelledConfigMap(largeMap, ""), &unstructured.Unstructured{})
	if err != nil {
		t.Fatal(err)
	}
	linear := m.(*linearMerger)
	typed, err := linear.types.ObjectToTyped(emptyObject(linear.version))
	if err != nil {
		t.Fatal(err)
	}
	library, err := f.managerOf(served, subresource)
	if err != nil {
		t.Fatal(err)
	}
	sorted, err := f.newManagerWith(served, sortedConverter{linear.types, 0}, subresource)
	if err != nil {
		t.Fatal(err)
	}
	return mergeTarget{served, subresource, linear, library, sorted, typed.Schema(), typed.TypeRef()}
}

// mergeTargets returns kinds with fields of many types, also in a version that is not the stored one, and with their
// status.
func mergeTargets(t *testing.T) []mergeTarget {
	t.Helper()
	f, _ := newPodManagers(t)
	var list []mergeTarget
	widget := wire.Served{Kind: newWidgetKind(t)}
	list = append(list, newMergeTarget(t, f, widget, ""), newMergeTarget(t, f, widget, "status"))
	wanted := []string{"Deployment", "ConfigMap", "Service", "Pod", "StatefulSet", "HorizontalPodAutoscaler",
		"NetworkPolicy", "ValidatingWebhookConfiguration", "CustomResourceDefinition", "APIService"}
	for _, k := range kinds.All() {
		if !slices.Contains(wanted, k.GVK.Kind) {
			continue
		}
		list = append(list, newMergeTarget(t, f, wire.Served{Kind: k}, ""))
		if k.GVK.Kind == "Deployment" {
			list = append(list, newMergeTarget(t, f, wire.Served{Kind: k}, "status"))
		}
		for i := range k.Aliases {
			list = append(list, newMergeTarget(t, f, wire.Served{Kind: k, Alias: &k.Aliases[i]}, ""))
		}
	}
	return list
}

// fixedTexts are valid texts of named types that are scalars in the schema but not of any text.
var fixedTexts = map[string][]any{
	"meta.v1.Time":       {"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
	"meta.v1.MicroTime":  {"2026-01-01T00:00:00.000000Z"},
	"resource.Quantity":  {"1", "100m", "1Gi", int64(2)},
	"intstr.IntOrString": {int64(1), "a", "50%"},
}

// draw returns a random value of a type. It draws from few values, so that declarations overlap.
func (m *mergeTarget) draw(t *rapid.T, ref schema.TypeRef, depth int) any {
	if ref.NamedType != nil {
		for suffix, texts := range fixedTexts {
			if strings.HasSuffix(*ref.NamedType, suffix) {
				return rapid.SampledFrom(texts).Draw(t, "fixed")
			}
		}
	}
	atom, ok := m.types.Resolve(ref)
	switch {
	case !ok:
		return nil
	case atom.Scalar != nil && (depth <= 0 || atom.Map == nil || rapid.Bool().Draw(t, "scalar")):
		return drawScalar(t, *atom.Scalar)
	case atom.Map != nil:
		return m.drawMap(t, atom.Map, depth)
	case atom.List != nil:
		list := []any{}
		for range rapid.IntRange(0, min(5, max(depth, 0))).Draw(t, "items") {
			if item := m.drawItem(t, atom.List, depth-1); !hasItem(atom.List, list, item) ||
				rapid.IntRange(0, 30).Draw(t, "duplicate") == 0 {
				list = append(list, item)
			}
		}
		return list
	}
	return nil
}

func drawScalar(t *rapid.T, kind schema.Scalar) any {
	switch kind {
	case schema.Numeric:
		return rapid.SampledFrom([]any{int64(0), int64(1), int64(2), 1.0, 1.5}[:rapid.SampledFrom([]int{3, 3, 3, 5}).
			Draw(t, "numbers")]).Draw(t, "number")
	case schema.Boolean:
		return rapid.Bool().Draw(t, "boolean")
	case schema.String:
		return rapid.SampledFrom([]any{"aaaa", "bbbb", "cccc", "dddd", "eeee", "", "a\"<é"}).Draw(t, "string")
	}
	return rapid.SampledFrom([]any{"aaaa", int64(1), true}).Draw(t, "untyped")
}

// drawMap draws some fields of a map. The name and namespace of the object are set elsewhere.
func (m *mergeTarget) drawMap(t *rapid.T, of *schema.Map, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, min(4, max(depth, 0))).Draw(t, "fields") {
		name, ref := rapid.SampledFrom([]string{"aaaa", "bbbb", "example.com/c"}).Draw(t, "key"), of.ElementType
		if len(of.Fields) > 0 {
			field := rapid.SampledFrom(of.Fields).Draw(t, "field")
			if m.isScalar(field.Type) {
				field = rapid.SampledFrom(of.Fields).Draw(t, "other field") // most fields are scalars
			}
			name, ref = field.Name, field.Type
		}
		if ref != (schema.TypeRef{}) && !slices.Contains(serverFields, name) {
			out[name] = m.draw(t, ref, depth-1)
		}
	}
	return out
}

func (m *mergeTarget) isScalar(ref schema.TypeRef) bool {
	atom, ok := m.types.Resolve(ref)
	return ok && atom.Map == nil && atom.List == nil
}

// serverFields are fields that clients do not declare.
var serverFields = []string{"apiVersion", "kind", "managedFields", "uid", "resourceVersion"}

// drawItem draws an item of a list, with all keys that have no default, or almost all.
func (m *mergeTarget) drawItem(t *rapid.T, of *schema.List, depth int) any {
	item := m.draw(t, of.ElementType, max(depth, 1))
	fields, ok := item.(map[string]any)
	atom, isDeclared := m.types.Resolve(of.ElementType)
	if !ok || !isDeclared || atom.Map == nil {
		return item
	}
	for _, key := range of.Keys {
		field, _ := atom.Map.FindField(key)
		switch {
		case field.Default != nil && rapid.Bool().Draw(t, "default key"):
			delete(fields, key)
		default:
			fields[key] = m.draw(t, field.Type, 0)
		}
	}
	return item
}

// hasItem reports whether an associative list has an item with the same keys.
func hasItem(of *schema.List, list []any, item any) bool {
	if of.ElementRelationship != schema.Associative {
		return false
	}
	identity := func(item any) string {
		fields, ok := item.(map[string]any)
		if !ok || len(of.Keys) == 0 {
			return fmt.Sprint(item)
		}
		text := ""
		for _, key := range of.Keys {
			text += fmt.Sprintf("%v;", fields[key])
		}
		return text
	}
	return slices.ContainsFunc(list, func(other any) bool { return identity(other) == identity(item) })
}

// drawObject draws a complete declaration, of which few parts are empty.
func (m *mergeTarget) drawObject(t *rapid.T) map[string]any {
	atom, _ := m.types.Resolve(m.root)
	out := map[string]any{}
	for _, field := range atom.Map.Fields {
		if !slices.Contains(serverFields, field.Name) && rapid.IntRange(0, 3).Draw(t, "part") > 0 {
			out[field.Name] = m.draw(t, field.Type, 6)
		}
	}
	return out
}

// edit changes a value at random: it adds and replaces fields and items, reorders lists, and removes fields and items
// if removes is set. Now and then it adds a field that the schema does not have.
func (m *mergeTarget) edit(t *rapid.T, ref schema.TypeRef, value any, depth int, removes bool) any {
	atom, ok := m.types.Resolve(ref)
	action := rapid.IntRange(0, 15).Draw(t, "edit")
	switch v := value.(type) {
	case map[string]any:
		if !ok || atom.Map == nil {
			return value
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			field, isField := atom.Map.FindField(name)
			inner := atom.Map.ElementType
			if isField {
				inner = field.Type
			}
			switch edit := rapid.IntRange(0, 24).Draw(t, "edit field"); {
			case edit == 0 && removes:
				delete(v, name)
			case edit == 1 && removes:
				v[name] = nil
			case edit == 2 && (removes || m.isScalar(inner)):
				v[name] = m.draw(t, inner, depth-1)
			default:
				v[name] = m.edit(t, inner, v[name], depth-1, removes)
			}
		}
		switch {
		case action == 0 && len(v) > 3:
			v["unknown"] = int64(1)
		case action < 4:
			maps.Copy(v, m.drawMap(t, atom.Map, depth))
		}
	case []any:
		if !ok || atom.List == nil {
			return value
		}
		for i := range v {
			v[i] = m.edit(t, atom.List.ElementType, v[i], depth-1, removes)
		}
		switch {
		case action < 3 && len(v) > 0 && removes:
			v = slices.Delete(v, 0, 1)
		case action < 7 && len(v) > 1:
			v = rapid.Permutation(v).Draw(t, "order")
		case action < 12:
			if item := m.drawItem(t, atom.List, depth-1); !hasItem(atom.List, v, item) {
				v = slices.Insert(v, rapid.IntRange(0, len(v)).Draw(t, "at"), item)
			}
		}
		return v
	}
	return value
}

// declaration returns what a client sends, with identity.
func (m *mergeTarget) declaration(fields map[string]any) *unstructured.Unstructured {
	u := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	metadata, _ := u.Object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = "a"
	u.Object["metadata"] = metadata
	u.SetGroupVersionKind(m.linear.version)
	return u
}

// update returns the live object after an update by a manager, or as it is if the schema refuses the new one. It
// compares the owners of sorted fields with the library's.
func (m *mergeTarget) update(t *rapid.T, live runtime.Object, declared *unstructured.Unstructured,
	manager string) runtime.Object {
	next, ok := m.linear.toHub(declared.DeepCopy().Object)
	if !ok {
		return live
	}
	next.GetObjectKind().SetGroupVersionKind(m.served.GVK)
	if _, err := m.linear.types.ObjectToTyped(next); err != nil {
		return live
	}
	got := m.sorted.UpdateNoErrors(live.DeepCopyObject(), next.DeepCopyObject(), manager)
	want := m.library.UpdateNoErrors(live.DeepCopyObject(), next, manager)
	compareApplied(t, live, declared, got, want)
	return withUID(t, want)
}

// withUID returns an object with the UID that every stored object has.
func withUID(t *rapid.T, obj runtime.Object) runtime.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	m.SetUID("u")
	return obj
}

// mergeCounts counts declarations by what became of them.
type mergeCounts struct {
	linear  map[string]int // merged in linear time, by kind
	refused int            // refused by the library

	conflicts, removals int // merged in linear time, with conflicts, and with less fields than the manager owned before
}

// hasLostFields reports whether a manager declared fields of an object that it does not declare after an apply.
func hasLostFields(t *rapid.T, before, after runtime.Object, manager string) bool {
	declared := func(obj runtime.Object) *fieldpath.Set {
		m, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.GetManagedFields() {
			if e.Manager == manager && e.Operation == "Apply" {
				if set, ok := readSet(e.FieldsV1.Raw); ok {
					return set
				}
			}
		}
		return fieldpath.NewSet()
	}
	return !declared(before).Difference(declared(after)).Empty()
}

// compareMerges applies declarations of several managers to one object in the versions of a kind, some of them after
// updates, and compares each linear merge with the library's.
func compareMerges(t *rapid.T, versions []mergeTarget, counts *mergeCounts) {
	live, sent := versions[0].served.New(), map[string]map[string]any{}
	m := versions[0]
	for range rapid.IntRange(3, 10).Draw(t, "writes") {
		if rapid.IntRange(0, 4).Draw(t, "other version") == 0 {
			m = rapid.SampledFrom(versions).Draw(t, "version")
		}
		live.GetObjectKind().SetGroupVersionKind(m.served.GVK)
		manager := rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "manager")
		base := sent[m.linear.version.Version+rapid.SampledFrom([]string{manager, manager, "x"}).Draw(t, "base")]
		if base == nil {
			base = m.drawObject(t)
		} else {
			removes := rapid.IntRange(0, 3).Draw(t, "removes") == 0
			base = m.edit(t, m.root, runtime.DeepCopyJSON(base), 6, removes).(map[string]any)
		}
		declared := m.declaration(base)
		if rapid.IntRange(0, 4).Draw(t, "update") == 0 {
			live = m.update(t, live, declared, manager)
			continue
		}
		if want, err := m.compareApply(t, live, declared, manager, counts); err != nil {
			counts.refused++
		} else {
			live, sent[m.linear.version.Version+manager] = withUID(t, want), base
		}
	}
}

// compareApply compares a linear merge with the library's, and returns the result of the library.
func (m *mergeTarget) compareApply(t *rapid.T, live runtime.Object, declared *unstructured.Unstructured,
	manager string, counts *mergeCounts) (runtime.Object, error) {
	force := rapid.IntRange(0, 7).Draw(t, "force") > 0
	want, wantErr := m.library.Apply(live.DeepCopyObject(), declared.DeepCopy(), manager, force)
	got, ok, gotErr := m.linear.apply(live.DeepCopyObject(), declared.DeepCopy(), manager, force)
	if !ok {
		return want, wantErr
	}
	counts.linear[m.served.GVK.Kind+m.subresource]++
	compareResults(t, live, declared, applied{got, gotErr}, applied{want, wantErr})
	if gotErr != nil {
		counts.conflicts++
	} else if hasLostFields(t, live, got, manager) {
		counts.removals++
	}
	return want, wantErr
}

// For kinds of many forms, the linear merge gives the same objects and field owners as the library's, over random
// declarations of several managers, updates, conflicts and removals.
// Proves S12.
func TestLinearMergeOfManyKindsEqualsTheLibrary(t *testing.T) {
	targets := mergeTargets(t)
	counts := mergeCounts{linear: map[string]int{}}
	rapid.Check(t, func(t *rapid.T) {
		for range 3 {
			m := rapid.SampledFrom(targets).Draw(t, "target")
			versions := []mergeTarget{m}
			for _, other := range targets {
				if other.served.Kind == m.served.Kind && other.subresource == m.subresource &&
					other.linear.version != m.linear.version {
					versions = append(versions, other)
				}
			}
			compareMerges(t, versions, &counts)
		}
	})
	t.Logf("%+v", counts)
	if len(counts.linear) < len(targets)/2 || counts.refused == 0 || counts.conflicts == 0 || counts.removals == 0 {
		t.Errorf("too few cases: %+v", counts)
	}
}
