package deployment

import (
	"fmt"
	"math"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func newRollingDeployment(wanted int32, surge, unavailable intstr.IntOrString) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{Replicas: &wanted, Strategy: appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}},
	}
}

func newSizedSet(name string, age int, replicas, available int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0)),
		},
		Spec:   appsv1.ReplicaSetSpec{Replicas: &replicas},
		Status: appsv1.ReplicaSetStatus{Replicas: replicas, AvailableReplicas: available, ReadyReplicas: available},
	}
}

// Proves S19.
func TestStepMovesWithinTheLimits(t *testing.T) {
	percent, zero, one := intstr.FromString("25%"), intstr.FromInt32(0), intstr.FromInt32(1)
	for _, c := range []struct {
		name string
		d    *appsv1.Deployment
		new  *appsv1.ReplicaSet
		old  []*appsv1.ReplicaSet
		want map[string]int32
	}{
		{"first start takes all at once", newRollingDeployment(4, percent, percent), newSizedSet("new", 0, 0, 0), nil,
			map[string]int32{"new": 4}},
		{"surge first", newRollingDeployment(4, percent, percent), newSizedSet("new", 0, 0, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 4, 4)},
			map[string]int32{"new": 1}},
		{"then old ones may go", newRollingDeployment(4, percent, percent), newSizedSet("new", 0, 1, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 4, 4)}, map[string]int32{"old": 3}},
		{"without surge, old ones first", newRollingDeployment(2, zero, one), newSizedSet("new", 0, 0, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 2, 2)}, map[string]int32{"old": 1}},
		{"without unavailability, wait for the new one", newRollingDeployment(2, one, zero),
			newSizedSet("new", 0, 1, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 2, 2)}, map[string]int32{}},
		{"broken old ones go at once", newRollingDeployment(4, one, zero), newSizedSet("new", 0, 1, 1),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 4, 3)}, map[string]int32{"old": 3}},
		{"a surge of all that a number can be", newRollingDeployment(10, intstr.FromInt32(math.MaxInt32), zero),
			newSizedSet("new", 0, 0, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 10, 10)}, map[string]int32{"new": 10}},
		{"a share of all that a number can be", newRollingDeployment(math.MaxInt32, intstr.FromString("300%"), zero),
			newSizedSet("new", 0, 3, 3),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, math.MaxInt32, 5)}, map[string]int32{"new": math.MaxInt32}},
		{"done", newRollingDeployment(4, percent, percent), newSizedSet("new", 0, 4, 4),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 0, 0)},
			map[string]int32{}},
		{"too many new ones", newRollingDeployment(2, percent, percent), newSizedSet("new", 0, 4, 4), nil,
			map[string]int32{"new": 2}},
		{"zero and zero still moves", newRollingDeployment(4, zero, zero), newSizedSet("new", 0, 0, 0),
			[]*appsv1.ReplicaSet{newSizedSet("old", 9, 4, 4)}, map[string]int32{"old": 3}},
	} {
		got := map[string]int32{}
		for set, n := range nextReplicas(c.d, c.new, c.old) {
			got[set.Name] = n
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Pods may become available and be deleted in any order. The rollout ends, never has more pods than surge allows,
// including those to be deleted, and never plans below the minimum of available pods.
// Proves S19.
func TestRolloutsEndWithinTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wanted := rapid.Int32Range(0, 12).Draw(t, "wanted")
		surgeN, unavailableN := rapid.Int32Range(0, 4).Draw(t, "surge"), rapid.Int32Range(0, 4).Draw(t, "unavailable")
		d := newRollingDeployment(wanted, intstr.FromInt32(surgeN), intstr.FromInt32(unavailableN))
		surge, unavailable := rolloutLimits(d)
		newSet := newSizedSet("new", 0, 0, 0)
		sets := []*appsv1.ReplicaSet{newSet, newSizedSet("old", 9, wanted, wanted), newSizedSet("older", 20, 0, 0)}
		for range 400 {
			for set, n := range nextReplicas(d, newSet, sets[1:]) {
				before := *set.Spec.Replicas
				set.Spec.Replicas = ptr.To(n)
				if n < before { // available pods are deleted only after all others
					set.Status.AvailableReplicas = min(set.Status.AvailableReplicas, n)
				}
			}
			var total, available int32
			for _, set := range sets {
				total += max(*set.Spec.Replicas, set.Status.Replicas)
				available += set.Status.AvailableReplicas
			}
			if total > wanted+surge {
				t.Fatalf("%d pods, with %d wanted and a surge of %d", total, wanted, surge)
			}
			if available < wanted-unavailable {
				t.Fatalf("%d available, with %d wanted and %d allowed to be unavailable", available, wanted,
					unavailable)
			}
			for _, set := range sets {
				if set.Status.AvailableReplicas < *set.Spec.Replicas && rapid.Bool().Draw(t, "comes up") {
					set.Status.AvailableReplicas++
				}
				if set.Status.Replicas != *set.Spec.Replicas && rapid.Bool().Draw(t, "catches up") {
					set.Status.Replicas = *set.Spec.Replicas
				}
			}
			if *newSet.Spec.Replicas == wanted && *sets[1].Spec.Replicas == 0 {
				return
			}
		}
		t.Fatalf("the rollout did not end: new %d/%d, old %d", *newSet.Spec.Replicas, wanted, *sets[1].Spec.Replicas)
	})
}

func TestScalingToTheLargestNumber(t *testing.T) {
	d := newRollingDeployment(math.MaxInt32, intstr.FromString("25%"), intstr.FromString("25%"))
	sets := []*appsv1.ReplicaSet{newSizedSet("new", 0, 4, 4), newSizedSet("old", 9, 8, 8)}
	next := proportionalReplicas(d, sets, func(*appsv1.ReplicaSet) int64 { return 12 })
	if next[sets[0]] <= 4 || next[sets[1]] <= 8 {
		t.Errorf("new %d, old %d", next[sets[0]], next[sets[1]])
	}
}

// Proves S19.
func TestScalingInTheMiddleOfARolloutKeepsProportions(t *testing.T) {
	d := newRollingDeployment(20, intstr.FromInt32(2), intstr.FromInt32(2))
	sets := []*appsv1.ReplicaSet{newSizedSet("new", 0, 4, 4), newSizedSet("old", 9, 8, 8)}
	next := proportionalReplicas(d, sets, func(*appsv1.ReplicaSet) int64 { return 12 })
	var total int32
	for _, set := range sets {
		n, changed := next[set]
		if !changed {
			n = *set.Spec.Replicas
		}
		total += n
	}
	if total != 22 || next[sets[1]] <= next[sets[0]] {
		t.Errorf("new %d, old %d: want 22 in all, most of them old", next[sets[0]], next[sets[1]])
	}
}

// Proves S19.
func TestRecreateAndFullProgressAreReported(t *testing.T) {
	now := time.Unix(5000, 0)
	d := newRollingDeployment(2, intstr.FromInt32(1), intstr.FromInt32(0))
	d.Spec.ProgressDeadlineSeconds = ptr.To[int32](600)
	newSet := newSizedSet("web-1", 0, 2, 2)
	s := newStatus(d, newSet, []*appsv1.ReplicaSet{newSet}, outcome{}, now)
	if c := findCondition(s, appsv1.DeploymentProgressing); c == nil || c.Reason != "NewReplicaSetAvailable" {
		t.Errorf("progressing: %+v", c)
	}
	if c := findCondition(s, appsv1.DeploymentAvailable); c == nil || c.Status != "True" {
		t.Errorf("available: %+v", c)
	}
	d.Status = s
	d.Generation = 2
	stuck := newSizedSet("web-2", 0, 2, 0)
	s = newStatus(d, stuck, []*appsv1.ReplicaSet{stuck}, outcome{created: true}, now.Add(time.Second))
	d.Status = s
	s = newStatus(d, stuck, []*appsv1.ReplicaSet{stuck}, outcome{}, now.Add(602*time.Second))
	if c := findCondition(s, appsv1.DeploymentProgressing); c.Reason != "ProgressDeadlineExceeded" {
		t.Errorf("a stuck rollout: %+v", c)
	}
}

// A set that was scaled down has its pods until its controller deletes them. A new set that grew earlier would exceed
// the surge by one pod.
// Proves S19.
func TestTheNewSetDoesNotGrowBeforeOldPodsAreDeleted(t *testing.T) {
	d := newRollingDeployment(4, intstr.FromInt32(1), intstr.FromInt32(0))
	old, young := newSizedSet("old", 2, 3, 4), newSizedSet("new", 1, 1, 1)
	old.Status.Replicas = 4
	if next := nextReplicas(d, young, []*appsv1.ReplicaSet{old}); len(next) != 0 {
		t.Errorf("with four old pods and a new one, where five are the most: %v", next)
	}
	old.Status.Replicas, old.Status.AvailableReplicas = 3, 3
	if next := nextReplicas(d, young, []*appsv1.ReplicaSet{old}); len(next) != 1 || next[young] != 2 {
		t.Errorf("with three old pods and a new one: %v", next)
	}
}
