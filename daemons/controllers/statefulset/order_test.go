package statefulset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// Whatever happens to pods and to the spec, the order is kept and no more pods than allowed are unavailable. In the
// end, everything is as declared.
func TestTheOrderIsAlwaysKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ordered := rapid.Bool().Draw(t, "ordered")
		maximum := rapid.IntRange(1, 3).Draw(t, "unavailable")
		set := web(int32(rapid.IntRange(0, 5).Draw(t, "replicas")), func(s *appsv1.StatefulSet) {
			if !ordered {
				s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			}
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(int32(maximum)))
		})
		m := &simulatedSet{set: set, ordered: ordered, maximum: maximum, pods: map[int]*corev1.Pod{},
			current: newRevision,
			update:  newRevision}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m.set.Spec.Replicas = ptr.To(int32(rapid.IntRange(0, 5).Draw(t, "replicas")))
			case 1:
				m.update = rapid.SampledFrom([]revision{oldRevision, newRevision}).Draw(t, "template")
				m.set.Spec.Template = *m.update.template
			case 2, 3, 4:
				m.kubelet(rapid.IntRange(0, 5).Draw(t, "pod"), rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "fate"))
			default:
				m.sync(t)
			}
		}
		for round := 0; ; round++ {
			moved := m.sync(t)
			for n := range 6 {
				moved = m.kubelet(n, 0) || moved
			}
			if !moved {
				break
			}
			if round > 200 {
				t.Fatal("the decisions do not converge")
			}
		}
		if len(m.pods) != replicasOrDefault(m.set) {
			t.Fatalf("%d pods, want %d", len(m.pods), replicasOrDefault(m.set))
		}
		for n, p := range m.pods {
			if !m.isWell(n) || p.Labels[appsv1.StatefulSetRevisionLabel] != m.update.name {
				t.Fatalf("pod %d is %s, well %t", n, p.Labels[appsv1.StatefulSetRevisionLabel], m.isWell(n))
			}
		}
	})
}

// simulatedSet is a StatefulSet with its pods by their ordinals.
type simulatedSet struct {
	set             *appsv1.StatefulSet
	ordered         bool
	maximum         int // the number of pods that may be unavailable
	pods            map[int]*corev1.Pod
	uid             int // of the last pod
	current, update revision
}

func (m *simulatedSet) list() (all []*corev1.Pod) {
	for _, pod := range m.pods {
		all = append(all, pod)
	}
	return all
}

func (m *simulatedSet) isWell(n int) bool {
	p := m.pods[n]
	return p != nil && ordinalPod{p, n}.isHealthy()
}

// sync carries out a decision and checks its order. It reports whether the decision changes pods.
func (m *simulatedSet) sync(t *rapid.T) bool {
	d := Decide(m.set, m.current, m.update, m.list(), now)
	for _, pod := range d.Create {
		n, _ := ordinalOf(m.set, pod)
		if m.pods[n] != nil {
			t.Fatalf("a second pod %d", n)
		}
		for before := range n {
			if m.ordered && !m.isWell(before) {
				t.Fatalf("pod %d is made before %d is well", n, before)
			}
		}
		m.uid++
		pod.UID, pod.Status.Phase = types.UID(fmt.Sprint(m.uid)), corev1.PodPending
		m.pods[n] = pod
	}
	taken := 0
	for _, pod := range d.Delete {
		n, _ := ordinalOf(m.set, pod)
		if n < replicasOrDefault(m.set) && m.isWell(n) {
			taken++
		}
		if n >= replicasOrDefault(m.set) && m.ordered {
			for other := range m.pods {
				if other > n {
					t.Fatalf("%d is taken before %d", n, other)
				}
			}
		}
		m.pods[n] = pod.DeepCopy()
		m.pods[n].DeletionTimestamp = &metav1.Time{Time: now}
	}
	if taken > 0 {
		down := 0
		for n := range replicasOrDefault(m.set) {
			if !m.isWell(n) {
				down++
			}
		}
		if down > m.maximum {
			t.Fatalf("%d are down, and %d may be", down, m.maximum)
		}
	}
	if s := Status(m.set, m.current, m.update, m.list(), now); s.CurrentRevision == m.update.name {
		m.current = m.update
	}
	return len(d.Create)+len(d.Delete) > 0
}

// kubelet changes a pod: it removes a deleted one, or makes the pod ready (fate 0), unready (1) or failed (2). It
// reports whether the pod changes.
func (m *simulatedSet) kubelet(n, fate int) bool {
	p := m.pods[n]
	switch {
	case p == nil:
		return false
	case p.DeletionTimestamp != nil:
		delete(m.pods, n)
		return true
	}
	p = p.DeepCopy()
	m.pods[n] = p
	ready := corev1.ConditionTrue
	switch fate {
	case 1:
		ready = corev1.ConditionFalse
	case 2:
		ready = corev1.ConditionFalse
		p.Status.Phase = corev1.PodFailed
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return true
	}
	if p.Status.Phase == corev1.PodFailed {
		return false
	}
	changed := !m.isWell(n) || ready == corev1.ConditionFalse
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return changed
}
