package ownership

import (
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// threadTime returns the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A tenant must not occupy the server with an object whose lists have no order. The library takes quadratic time.
func TestFieldOwnersOfLongListsTakeLessTimeThanTheLibrary(t *testing.T) {
	f, served := newPodManagers(t)
	library, err := f.managerOf(served, "")
	if err != nil {
		t.Fatal(err)
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	p, live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}, &corev1.Pod{}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(16_000) {
		p.Finalizers = append(p.Finalizers, fmt.Sprint("example.com/", i))
	}
	p.SetGroupVersionKind(served.GVK)
	live.SetGroupVersionKind(served.GVK)
	start := threadTime(t)
	library.UpdateNoErrors(live, p.DeepCopy(), "m")
	between := threadTime(t)
	if _, err := f.Update(served, "", nil, live, p.DeepCopy(), "m"); err != nil {
		t.Fatal(err)
	}
	if slow, fast := between-start, threadTime(t)-between; fast > slow*3/4 {
		t.Errorf("it takes %s, and the library %s", fast, slow)
	}
}
