package ownership

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

func labelledConfigMap(n int, values string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{}},
	}
	for i := range n {
		m.Labels[fmt.Sprintf("l%d", i)] = values
	}
	return m
}

// The cost of an object with many labels grows linearly with their number, because its fields are visited in the order
// in which field sets are stored. The resulting field sets are the same as without that order.
// Proves S12.
func TestLargeMapsAreVisitedInOrder(t *testing.T) {
	plain := applyconfigurations.NewTypeConverter(clientscheme.Scheme)
	both := func(m *corev1.ConfigMap) (large, small *merging.TypedValue) {
		t.Helper()
		large, err := orderedConverter{TypeConverter: plain}.ObjectToTyped(m)
		if err != nil {
			t.Fatal(err)
		}
		if small, err = plain.ObjectToTyped(m); err != nil {
			t.Fatal(err)
		}
		return large, small
	}
	old, oldPlain := both(labelledConfigMap(largeMap+500, "a"))
	changed := labelledConfigMap(largeMap+900, "b")
	changed.Labels["l7"], changed.Data = "a", map[string]string{"k": "v"}
	delete(changed.Labels, "l9")
	next, nextPlain := both(changed)
	none, _ := both(labelledConfigMap(3, "a"))
	if _, ordered := none.AsValue().(orderedValue); ordered {
		t.Error("what is small is walked in order, too")
	}
	for name, c := range map[string][4]*merging.TypedValue{
		"made": {none, next, none, nextPlain}, "changed": {old, next, oldPlain, nextPlain},
		"shrunk": {next, none, nextPlain, none}, "the same": {old, old, oldPlain, oldPlain},
	} {
		got, err := c[0].Compare(c[1])
		if err != nil {
			t.Fatal(err)
		}
		want, err := c[2].Compare(c[3])
		if err != nil {
			t.Fatal(err)
		}
		if !got.Added.Equals(want.Added) || !got.Modified.Equals(want.Modified) || !got.Removed.Equals(want.Removed) {
			t.Errorf("%s: %d added, %d modified, %d removed; without the order it is something else", name,
				got.Added.Size(), got.Modified.Size(), got.Removed.Size())
		}
	}
	got, err := next.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := nextPlain.ToFieldSet(); err != nil || !got.Equals(want) {
		t.Errorf("its fields are others, %v", err)
	}
	merged, err := old.Merge(next)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := oldPlain.Merge(nextPlain); err != nil || !value.Equals(merged.AsValue(), want.AsValue()) {
		t.Errorf("it is merged to something else, %v", err)
	}
	meta, _ := next.AsValue().AsMap().Get("metadata")
	labels, _ := meta.AsMap().Get("labels")
	var keys []string
	labels.AsMap().Iterate(func(key string, _ value.Value) bool {
		keys = append(keys, key)
		return true
	})
	if !slices.IsSorted(keys) || len(keys) != len(changed.Labels) {
		t.Errorf("%d keys, in order: %v", len(keys), slices.IsSorted(keys))
	}
	var _ managedfields.TypeConverter = orderedConverter{}
}

// TestLargeDeclarationsAreVisitedInOrder merges a large declaration into an object without large maps. It
// compares the unordered result with the live object.
// Proves S12.
func TestLargeDeclarationsAreVisitedInOrder(t *testing.T) {
	plain := applyconfigurations.NewTypeConverter(clientscheme.Scheme)
	typed := func(c managedfields.TypeConverter, m *corev1.ConfigMap) *merging.TypedValue {
		t.Helper()
		v, err := c.ObjectToTyped(m)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	declared, small := labelledConfigMap(largeMap, "b"),
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	live := typed(orderedConverter{plain, true}, small)
	merged, err := live.Merge(typed(orderedConverter{TypeConverter: plain}, declared))
	if err != nil {
		t.Fatal(err)
	}
	live.AsValue().AsMap().Zip(merged.AsValue().AsMap(), value.Unordered, func(key string, _, rhs value.Value) bool {
		if _, ok := rhs.(orderedValue); !ok {
			t.Errorf("field %s of the merged value is not visited in order", key)
		}
		return true
	})
	got, err := live.Compare(merged)
	if err != nil {
		t.Fatal(err)
	}
	want, err := typed(plain, small).Compare(typed(plain, declared))
	if err != nil || !got.Added.Equals(want.Added) || !got.Modified.Equals(want.Modified) ||
		!got.Removed.Equals(want.Removed) {
		t.Errorf("%d added, %d modified, %d removed; differs from the unordered comparison, %v",
			got.Added.Size(), got.Modified.Size(), got.Removed.Size(), err)
	}
}

func TestLargeMapsAreFoundAtAnyDepth(t *testing.T) {
	many := map[string]any{}
	for i := range largeMap {
		many[fmt.Sprint(i)] = int64(i)
	}
	for name, c := range map[string]struct {
		in   map[string]any
		want bool
	}{
		"nowhere":     {map[string]any{"spec": map[string]any{"a": []any{"b", nil, 1.5}}}, false},
		"a field":     {map[string]any{"spec": map[string]any{"a": many}}, true},
		"a list item": {map[string]any{"spec": map[string]any{"a": []any{nil, map[string]any{"b": many}}}}, true},
	} {
		if got := hasLargeMaps(&unstructured.Unstructured{Object: c.in}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if hasLargeMaps(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}) ||
		!hasLargeMaps(labelledConfigMap(largeMap, "")) {
		t.Error("a typed object")
	}
}

func TestEntriesOfManagedFieldsAreNotCounted(t *testing.T) {
	names := map[string]any{}
	for i := range largeMap + 5 {
		names[fmt.Sprint("f:n", i)] = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"data": names, "metadata": map[string]any{
		"managedFields": []any{map[string]any{"manager": "m", "fieldsV1": names}}}}}
	if n := largeEntries(u); n != largeMap+5 {
		t.Errorf("there are %d entries", n)
	}
	if len(u.GetManagedFields()) != 1 {
		t.Error("the object has changed")
	}
}
