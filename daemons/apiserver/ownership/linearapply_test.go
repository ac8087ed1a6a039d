package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"clusterctl/daemons/apiserver/wire"
)

// newLinearMerger returns the linear merger of a kind, for objects of any size.
func newLinearMerger(t testing.TB, f *Managers, served wire.Served) *linearMerger {
	t.Helper()
	m, err := f.MergeManager(served, "", labelledConfigMap(largeMap, ""), &unstructured.Unstructured{})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*linearMerger)
}

// declare returns what a client sends to declare an object.
func declare(t interface{ Fatal(...any) }, obj runtime.Object, served wire.Served) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(served.Version())
	return u
}

// editDeclared makes a declaration unlike a complete object: without some fields, with nulls and empty containers, and
// with lists in another order.
func editDeclared(t *rapid.T, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains([]string{"apiVersion", "kind", "metadata", "name"}, name) {
				continue
			}
			switch rapid.IntRange(0, 24).Draw(t, "edit") {
			case 0:
				delete(v, name)
			case 1:
				v[name] = nil
			case 2:
				switch v[name].(type) {
				case map[string]any:
					v[name] = map[string]any{}
				case []any:
					v[name] = []any{}
				}
			default:
				v[name] = editDeclared(t, v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = editDeclared(t, v[i])
		}
		if len(v) > 1 && rapid.Bool().Draw(t, "reorder") {
			slices.Reverse(v)
		}
	}
	return value
}

// The linear merge gives the same objects and field owners as the library's.
// Proves S12.
func TestLinearMergeEqualsTheLibrary(t *testing.T) {
	f, served := newPodManagers(t)
	linear := newLinearMerger(t, f, served)
	merges, changes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		live := served.New()
		for range rapid.IntRange(1, 6).Draw(t, "writes") {
			live.GetObjectKind().SetGroupVersionKind(served.GVK)
			declared := declare(t, drawPod(t), served)
			if rapid.Bool().Draw(t, "edit declared") {
				editDeclared(t, declared.Object)
			}
			manager := rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "manager")
			force := rapid.IntRange(0, 3).Draw(t, "force") > 0
			want, wantErr := linear.library.Apply(live.DeepCopyObject(), declared.DeepCopy(), manager, force)
			got, ok, gotErr := linear.apply(live.DeepCopyObject(), declared.DeepCopy(), manager, force)
			if ok {
				merges++
				compareResults(t, live, declared, applied{got, gotErr}, applied{want, wantErr})
			}
			if wantErr == nil {
				if m, err := meta.Accessor(want); err == nil && rapid.Bool().Draw(t, "update") {
					m.SetUID("u")
				}
				changes++
				live = want
			}
		}
	})
	if merges < changes/4 {
		t.Errorf("%d of %d objects were merged in linear time", merges, changes)
	}
}

// applied is the result of an apply.
type applied struct {
	object runtime.Object
	err    error
}

// compareResults compares the results of a linear merge and of the library: objects and field owners, except for the
// times, or errors.
func compareResults(t *rapid.T, live runtime.Object, declared *unstructured.Unstructured, got, want applied) {
	if got.err == nil && want.err == nil {
		compareApplied(t, live, declared, got.object, want.object)
		return
	}
	if a, b := conflictText(t, got.err), conflictText(t, want.err); a != b {
		t.Fatalf("%s\nis applied to\n%s\nerror\n%s\nlibrary\n%s", mustJSON(t, declared), mustJSON(t, live), a, b)
	}
}

// conflictText returns the content of an error. The library returns the causes of several managers in random order.
func conflictText(t *rapid.T, err error) string {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return fmt.Sprint(err)
	}
	content := status.ErrStatus.DeepCopy()
	slices.SortStableFunc(content.Details.Causes, func(a, b metav1.StatusCause) int {
		return strings.Compare(a.Message, b.Message)
	})
	return mustJSON(t, content)
}

// compareApplied compares objects and field owners, except for the times.
func compareApplied(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, live runtime.Object, declared *unstructured.Unstructured, got, want runtime.Object) {
	text := func(obj runtime.Object) string {
		obj = obj.DeepCopyObject()
		m, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		entries := m.GetManagedFields()
		slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
			return strings.Compare(a.Manager, b.Manager)
		})
		for i := range entries {
			if entries[i].Time != nil {
				entries[i].Time = &metav1.Time{}
			}
		}
		m.SetManagedFields(entries)
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if a, b := text(got), text(want); a != b {
		t.Fatalf("applied to\n%s\nwas\n%s\nresult\n%s\nlibrary\n%s", mustJSON(t, live), mustJSON(t, declared), a, b)
	}
}

// podWithVariables returns a pod with an environment of n variables, in an order that is not that of their names.
func podWithVariables(n int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	c := corev1.Container{Name: "c", Image: "i", Env: make([]corev1.EnvVar, n)}
	for i := range c.Env {
		c.Env[i] = corev1.EnvVar{Name: fmt.Sprintf("E%d", n-i), Value: "v"}
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// applyVariables returns a function that applies a pod with n variables as each of two managers, in reverse order as
// the second.
func applyVariables(t testing.TB, n int) func() {
	f, served := newPodManagers(t)
	first := declare(t, podWithVariables(n), served)
	second := first.DeepCopy()
	containers, _, err := unstructured.NestedSlice(second.Object, "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(containers[0].(map[string]any)["env"].([]any))
	if err := unstructured.SetNestedSlice(second.Object, containers, "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	live := served.New()
	live.GetObjectKind().SetGroupVersionKind(served.GVK)
	return func() {
		t.Helper()
		for manager, declared := range map[string]*unstructured.Unstructured{"x": first, "y": second} {
			m, err := f.MergeManager(served, "", live, declared)
			if err != nil {
				t.Fatal(err)
			}
			if linear, ok := m.(*linearMerger); ok {
				linear.library = nil // it must not be needed
			}
			next, err := m.Apply(live.DeepCopyObject(), declared.DeepCopy(), manager, true)
			if err != nil {
				t.Fatal(err)
			}
			live = next
			live.GetObjectKind().SetGroupVersionKind(served.GVK)
		}
	}
}

// BenchmarkApplyOfListItems applies a pod with n environment variables. ns/item does not grow with n.
func BenchmarkApplyOfListItems(b *testing.B) {
	for _, n := range []int{largeMap, 10_000, 90_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			apply := applyVariables(b, n)
			apply()
			for b.Loop() {
				apply()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*n*b.N), "ns/item")
		})
	}
}

// TestWorkOfAnApplyGrowsWithItsItems applies ten times as many items, in an order for which sorted insertion takes
// quadratic time. The library takes no part.
// Proves S12.
func TestWorkOfAnApplyGrowsWithItsItems(t *testing.T) {
	work := func(n int) float64 {
		apply := applyVariables(t, n)
		apply()
		return testing.AllocsPerRun(1, apply)
	}
	few, many := work(largeMap), work(10*largeMap)
	if many > 11*few {
		t.Errorf("%.0f allocations for %d items, %.0f for %d", few, largeMap, many, 10*largeMap)
	}
}

// shuffled returns n items of a list of widgets in random order.
func shuffled(list string, n int, value bool) []any {
	items := make([]any, n)
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		switch name := fmt.Sprint("n", at); list {
		case "words":
			items[i] = name
		case "ends":
			items[i] = map[string]any{"name": name, "secure": value} // the port has a default
		}
	}
	return items
}

// TestWorkOfEveryWriteGrowsWithItsItems applies and updates lists of widgets with conflicts and removals. The library
// merges no list. Its comparisons visit the items in their order, and so insert each at the end of a slice.
// Proves S12.
func TestWorkOfEveryWriteGrowsWithItsItems(t *testing.T) {
	f, _ := newPodManagers(t)
	widget := wire.Served{Kind: newWidgetKind(t)}
	object := func(list string, items []any) *unstructured.Unstructured {
		u := emptyObject(widget.GVK)
		u.Object["metadata"] = map[string]any{"name": "a", "namespace": "b"}
		u.Object["spec"] = map[string]any{list: items}
		return u
	}
	apply := func(live runtime.Object, declared *unstructured.Unstructured, manager string) (runtime.Object, error) {
		m, err := f.MergeManager(widget, "", live, declared)
		if err != nil {
			t.Fatal(err)
		}
		m.(*linearMerger).library = nil // it must not be needed
		return m.Apply(live.DeepCopyObject(), declared.DeepCopy(), manager, false)
	}
	for _, list := range []string{"ends", "words"} {
		work := func(n int) map[string]float64 {
			items, others := shuffled(list, n, false), shuffled(list, n, true)
			live, err := apply(emptyObject(widget.GVK), object(list, items), "x")
			if err != nil {
				t.Fatal(err)
			}
			live.(*unstructured.Unstructured).SetUID("u")
			return map[string]float64{
				"conflict": testing.AllocsPerRun(1, func() {
					_, err := apply(live, object(list, others), "y")
					if list == "ends" && !apierrors.IsConflict(err) || list == "words" && err != nil {
						t.Errorf("%.200v", err)
					}
				}),
				"removal": testing.AllocsPerRun(1, func() {
					after, err := apply(live, object(list, items[:n/2]), "x")
					if err != nil {
						t.Fatal(err)
					}
					left, _, err := unstructured.NestedSlice(after.(*unstructured.Unstructured).Object, "spec", list)
					if err != nil || len(left) != n/2 {
						t.Errorf("%d items are left, not %d: %v", len(left), n/2, err)
					}
				}),
				"update": testing.AllocsPerRun(1, func() {
					next := object(list, others[:n/2])
					next.SetUID("u")
					if _, err := f.Update(widget, "", nil, live.DeepCopyObject(), next, "z"); err != nil {
						t.Fatal(err)
					}
				}),
			}
		}
		few, many := work(2*largeMap), work(8*largeMap)
		for what := range few {
			if many[what] > 4.4*few[what] {
				t.Errorf("%s of %s: %.0f allocations for %d items, %.0f for %d", what, list, few[what], 2*largeMap,
					many[what], 8*largeMap)
			}
		}
	}
}

// An item without a key field has the default value. The library orders it by this value.
func TestItemsWithDefaultKeysAreVisitedInTheirOrder(t *testing.T) {
	types := newMergeTarget(t, New(runtime.NewScheme(), time.Now), wire.Served{Kind: newWidgetKind(t)}, "")
	atom, _ := types.types.Resolve(types.root)
	spec, _ := atom.Map.FindField("spec")
	specAtom, _ := types.types.Resolve(spec.Type)
	ends, _ := specAtom.Map.FindField("ends")
	list := make([]any, 2*largeMap)
	for i := range list {
		item := map[string]any{"name": "same", "port": int64(i)}
		if i == 80 {
			delete(item, "port")
		}
		list[len(list)-1-i] = item
	}
	sorted := sortedValue{value.NewValueInterface(list), types.types, ends.Type, largeMap}.AsList()
	for i := range list {
		item := sorted.At(i).Unstructured().(map[string]any)
		if port, ok := item["port"]; ok && port != int64(i) || ok == (i == 80) {
			t.Fatalf("item %d is %v", i, item)
		}
	}
}

// What the linear merge does not support is left to the library, which takes quadratic time, only for few items.
func TestUnusualMergesOfVeryLongListsAreRefused(t *testing.T) {
	f, _ := newPodManagers(t)
	widget := wire.Served{Kind: newWidgetKind(t)}
	for n, want := range map[int]bool{2 * largeMap: false, maxLibraryEntries + 1: true} {
		words := shuffled("words", n, false)
		words[0] = "\u00e9" // it is not plain text
		declared := emptyObject(widget.GVK)
		declared.Object["metadata"] = map[string]any{"name": "a", "namespace": "b"}
		declared.Object["spec"] = map[string]any{"words": words}
		live := emptyObject(widget.GVK)
		m, err := f.MergeManager(widget, "", live, declared)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(live, declared, "x", false); apierrors.IsRequestEntityTooLargeError(err) != want {
			t.Errorf("%d items: %v", n, err)
		}
	}
}
