package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// newLargePod returns a pod with lists of n items in a random order: sets, lists with one and two keys, lists within
// lists, atomic lists, and items with the same key.
func newLargePod(random *rand.Rand, n int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Labels: map[string]string{}}}
	c := corev1.Container{Name: "c", Image: "i"}
	few := func(text string) string { return fmt.Sprint(text, random.IntN(3)) }
	for _, i := range random.Perm(n) {
		name := fmt.Sprint("n", i)
		if random.IntN(4) == 0 {
			continue
		}
		p.Labels[name] = few("v")
		p.Finalizers = append(p.Finalizers, "example.com/"+name)
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1",
			Kind: "Node", Name: few("o"), UID: types.UID(name)})
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: name, Value: few("v")})
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name})
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: few("v")})
		port := corev1.ContainerPort{ContainerPort: int32(i%500 + 1), Protocol: corev1.ProtocolTCP, Name: few("p")}
		if random.IntN(2) == 0 {
			port.Protocol = corev1.ProtocolUDP
		}
		c.Ports = append(c.Ports, port) // some have the same key
	}
	p.Spec.Containers = []corev1.Container{{Name: "a"}, c}
	return p
}

func TestFieldOwnersOfLargeListsAreThoseOfTheLibrary(t *testing.T) {
	f, served := newPodManagers(t)
	library, err := f.managerOf(served, "")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	live := runtime.Object(&corev1.Pod{})
	for i := range 4 {
		next := newLargePod(random, []int{1400, 3}[i%2])
		for _, obj := range []runtime.Object{live, next} {
			obj.GetObjectKind().SetGroupVersionKind(served.GVK)
		}
		manager := fmt.Sprint("m", i%2)
		want := library.UpdateNoErrors(ShallowCopy(live), next.DeepCopy(), manager)
		got, err := f.Update(served, "", nil, live, next, manager)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := updateFields(t, got), updateFields(t, want); a != b {
			t.Fatalf("update %d: got\n%.2000s\nwant\n%.2000s", i, a, b)
		}
		live = got
	}
}

// The library inserts the fields that it visits into sorted slices, which takes quadratic time in any other order. So a
// tenant could occupy the server with an object whose lists have no order.
func TestLongListsAreVisitedInTheOrderOfTheirKeys(t *testing.T) {
	f, served := newPodManagers(t)
	p := newLargePod(rand.New(rand.NewPCG(1, 2)), 2*largeMap)
	p.SetGroupVersionKind(served.GVK)
	if _, err := f.Update(served, "", nil, p.DeepCopy(), p.DeepCopy(), "m"); err != nil {
		t.Fatal(err)
	}
	if f.managers[managerKey{kind: served.Kind, alias: served.Alias, sorts: true}] == nil {
		t.Error("the owners of a large object are not computed by sorted values")
	}
	object, err := sortedConverter{f.Converter(), largeMap}.ObjectToTyped(p, typed.AllowDuplicates)
	if err != nil {
		t.Fatal(err)
	}
	field := func(of value.Value, name string) value.Value {
		t.Helper()
		found, ok := of.AsMap().Get(name)
		if !ok {
			t.Fatalf("there is no field %s", name)
		}
		return found
	}
	checkOrder := func(list value.Value, keys ...string) {
		t.Helper()
		var last []value.Value
		visited := 0
		for r := list.AsList().Range(); r.Next(); visited++ {
			_, item := r.Item()
			next := []value.Value{item}
			for i, key := range keys {
				next = append(next[:i], field(item, key))
			}
			if last != nil && slices.CompareFunc(last, next, compareKeys) > 0 {
				t.Fatalf("%v comes before %v", last, next)
			}
			last = next
		}
		if visited < largeMap {
			t.Errorf("%d items of %v were visited", visited, keys)
		}
	}
	root := object.AsValue()
	checkOrder(field(field(root, "metadata"), "finalizers"))
	checkOrder(field(field(root, "metadata"), "ownerReferences"), "uid")
	container := field(field(root, "spec"), "containers").AsList().At(1)
	checkOrder(field(container, "env"), "name")
	checkOrder(field(container, "ports"), "containerPort", "protocol")
	previous := ""
	field(field(root, "metadata"), "labels").AsMap().Iterate(func(key string, _ value.Value) bool {
		if key < previous {
			t.Errorf("label %s comes after %s", key, previous)
		}
		previous = key
		return true
	})
}
