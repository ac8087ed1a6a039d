package ownership

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

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
			got, ok := linear.apply(live.DeepCopyObject(), declared.DeepCopy(), manager, force)
			if ok {
				merges++
				if wantErr != nil {
					t.Fatalf("%s\nis applied to\n%s\n, but the library refuses it: %v",
						mustJSON(t, declared), mustJSON(t, live), wantErr)
				}
				compareApplied(t, live, declared, got, want)
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
