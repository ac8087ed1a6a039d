package ownership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// newPodManagers returns field managers, and the kind of pods.
func newPodManagers(t testing.TB) (*Managers, wire.Served) {
	scheme := runtime.NewScheme()
	for _, k := range kinds.All() {
		scheme.AddKnownTypeWithName(k.GVK, k.New())
		metav1.AddToGroupVersion(scheme, k.GVK.GroupVersion())
		for _, a := range k.Aliases {
			scheme.AddKnownTypeWithName(a.GVK, a.New())
			metav1.AddToGroupVersion(scheme, a.GVK.GroupVersion())
		}
	}
	for _, k := range kinds.All() {
		if k.Resource == "pods" && k.GVK.Group == "" {
			return New(scheme, time.Now), wire.Served{Kind: k}
		}
	}
	t.Fatal("there are no pods")
	return nil, wire.Served{}
}

// drawPod draws from few values, so that many pods are similar.
func drawPod(t *rapid.T) *corev1.Pod {
	few := func(what string, n int) string { return fmt.Sprint(what, rapid.IntRange(0, n).Draw(t, what)) }
	some := func(what string) bool { return rapid.IntRange(0, 2).Draw(t, what) == 0 }
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: types.UID(few("uid", 1))}}
	if some("labels") {
		p.Labels = map[string]string{few("l", 1): few("v", 2)}
	}
	if some("finalizers") {
		p.Finalizers = []string{few("f", 2)}
	}
	if some("owners") {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: few("o", 1), UID: types.UID(few("u", 1))},
		}
	}
	for range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := corev1.Container{Name: few("c", 3), Image: few("i", 2)}
		for range rapid.IntRange(0, 2).Draw(t, "env") {
			e := corev1.EnvVar{Name: few("e", 2), Value: few("x", 1)}
			if some("from") {
				e.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: few("p", 1)}}
			}
			c.Env = append(c.Env, e)
		}
		for range rapid.IntRange(0, 2).Draw(t, "ports") {
			c.Ports = append(
				c.Ports,
				corev1.ContainerPort{
					ContainerPort: int32(rapid.IntRange(1, 2).Draw(t, "port")),
					Protocol:      "TCP",
					Name:          few("n", 1),
				},
			)
		}
		if some("args") {
			c.Args = []string{few("a", 1), few("a", 1)}
		}
		if some("lifecycle") {
			c.Lifecycle = &corev1.Lifecycle{
				PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{few("m", 1)}}},
			}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for range rapid.IntRange(0, 2).Draw(t, "tolerations") {
		p.Spec.Tolerations = append(p.Spec.Tolerations,
			corev1.Toleration{Key: few("k", 1), Value: few("v", 1), Operator: "Equal"})
	}
	if some("selector") {
		p.Spec.NodeSelector = map[string]string{few("s", 1): few("v", 1)}
	}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		p.Status.Conditions = append(
			p.Status.Conditions,
			corev1.PodCondition{
				Type:   corev1.PodConditionType(few("t", 1)),
				Status: corev1.ConditionStatus(few("b", 1)),
				Reason: few("r", 1),
			},
		)
	}
	return p
}

func updateFields(t interface{ Fatal(...any) }, obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	entries := slices.Clone(m.GetManagedFields())
	for i := range entries {
		entries[i].Time = nil // both times are about now, but may differ by a second
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return strings.Compare(a.Manager+a.Subresource, b.Manager+b.Subresource)
	})
	data, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Cached field owners are the same as newly computed ones.
// Proves S12.
func TestCachedFieldOwnersEqualComputedOnes(t *testing.T) {
	f, served := newPodManagers(t)
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		live := runtime.Object(&corev1.Pod{})
		var before *cache.Entry
		pool := []*corev1.Pod{drawPod(t), drawPod(t), drawPod(t)}
		for _, manager := range rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 1, 12).Draw(t, "managers") {
			subresource := ""
			if before != nil {
				subresource = rapid.SampledFrom([]string{"", "status"}).Draw(t, "subresource")
			}
			next := rapid.SampledFrom(pool).Draw(t, "next").DeepCopy()
			if before != nil && rapid.Bool().Draw(t, "sends the account") {
				next.ManagedFields = slices.Clone(live.(*corev1.Pod).ManagedFields)
			}
			m, err := f.managerOf(served, subresource)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range []runtime.Object{live, next} {
				obj.GetObjectKind().SetGroupVersionKind(served.GVK)
			}
			want := m.UpdateNoErrors(ShallowCopy(live), next.DeepCopy(), manager)
			if key, account, ok := f.memoKey(served, subresource, before, live, next, manager); ok {
				if _, ok := f.memo.Get(key, account, time.Now()); ok {
					hits++
				}
			}
			got, err := f.Update(served, subresource, before, live, next, manager)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := updateFields(t, got), updateFields(t, want); a != b {
				t.Fatalf("of\n%s\nwas remembered\n%s\nand is\n%s", mustJSON(t, got), a, b)
			}
			data, err := cache.Encode(served.Kind, got)
			if err != nil {
				t.Fatal(err)
			}
			if before, err = cache.NewEntry(served.Kind, "b/a", data, 1, nil); err != nil {
				t.Fatal(err)
			}
			if live, err = before.Object(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if hits == 0 {
		t.Error("nothing was remembered")
	}
}

func mustJSON(t interface{ Fatal(...any) }, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func BenchmarkUpdateFields(b *testing.B) {
	f, served := newPodManagers(b)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u", Labels: map[string]string{"app": "x"}},
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "e", Value: "v"}}}}
	made, err := f.Update(served, "", nil, &corev1.Pod{}, p, "m")
	if err != nil {
		b.Fatal(err)
	}
	data, err := cache.Encode(served.Kind, made)
	if err != nil {
		b.Fatal(err)
	}
	e, err := cache.NewEntry(served.Kind, "b/a", data, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, remembered := range []bool{false, true} {
		b.Run(fmt.Sprint("remembered=", remembered), func(b *testing.B) {
			b.ReportAllocs()
			m, err := f.managerOf(served, "")
			if err != nil {
				b.Fatal(err)
			}
			got, err := e.Object()
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				next := got.(*corev1.Pod).DeepCopy()
				next.Annotations = map[string]string{"stamp": fmt.Sprint(i)}
				if remembered {
					_, err = f.Update(served, "", e, got, next, "m")
				} else {
					m.UpdateNoErrors(ShallowCopy(got), next, "m")
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
