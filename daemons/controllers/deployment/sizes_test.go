package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// withSizeAnnotations sets the annotations for which number of replicas a set was last scaled, with a surge of one.
func withSizeAnnotations(set *appsv1.ReplicaSet, n int32) *appsv1.ReplicaSet {
	set.Annotations[desiredAnnotation], set.Annotations[maxAnnotation] = formatCount(n), formatCount(n+1)
	return set
}

func TestScalingIsDistributedAmongTheSets(t *testing.T) {
	paused := func(d *appsv1.Deployment) *appsv1.Deployment { d.Spec.Paused = true; return d }
	for _, c := range []struct {
		name string
		d    *appsv1.Deployment
		sets func(d *appsv1.Deployment) []*appsv1.ReplicaSet
		want map[string]int32
	}{
		{"one set takes all", paused(web(5, "a:2")), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "old", "a:1", "1", 2), 2)}
		}, map[string]int32{"old": 5}},
		{"in proportion, and what is left to the largest", web(20, "a:2"),
			func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
				return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "old", "a:1", "1", 8), 10),
					withSizeAnnotations(webSet(d, "new", "a:2", "2", 3), 10)}
			}, map[string]int32{"old": 15, "new": 6}},
		{"without any replicas, the new set", paused(web(3, "a:2")), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{webSet(d, "old", "a:1", "1", 0), webSet(d, "new", "a:2", "2", 0)}
		}, map[string]int32{"old": 0, "new": 3}},
		{"without any replicas and before there is a new set, the latest", paused(web(3, "a:9")),
			func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
				older, old := webSet(d, "older", "a:1", "1", 0), webSet(d, "old", "a:2", "2", 0)
				older.CreationTimestamp = metav1.NewTime(old.CreationTimestamp.Add(-1e9))
				return []*appsv1.ReplicaSet{older, old}
			}, map[string]int32{"older": 0, "old": 3}},
		{"a new set that has all leaves nothing to old ones", paused(web(3, "a:2")),
			func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
				return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "adopted", "a:1", "1", 2), 2),
					webSet(d, "new", "a:2", "2", 3)}
			}, map[string]int32{"adopted": 0, "new": 3}},
		{"Recreate shares nothing", func() *appsv1.Deployment {
			d := paused(web(6, "a:2"))
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			return d
		}(), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "old", "a:1", "1", 2), 3),
				withSizeAnnotations(webSet(d, "new", "a:2", "2", 1), 3)}
		}, map[string]int32{"old": 2, "new": 1}},
		{"a set that does not say what it was sized for goes by the pods that there are", func() *appsv1.Deployment {
			d := paused(web(20, "a:2"))
			d.Status.Replicas = 11
			return d
		}(), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			old := withSizeAnnotations(webSet(d, "old", "a:1", "1", 8), 10)
			delete(old.Annotations, maxAnnotation)
			return []*appsv1.ReplicaSet{old, withSizeAnnotations(webSet(d, "new", "a:2", "2", 3), 10)}
		}, map[string]int32{"old": 15, "new": 6}},
		{"to nothing", web(0, "a:2"), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "old", "a:1", "1", 8), 10),
				withSizeAnnotations(webSet(d, "new", "a:2", "2", 3), 10)}
		}, map[string]int32{"old": 0, "new": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestCluster(t, c.d, c.sets(c.d)...)
			w.requireNoError(w.sync())
			if got := w.sets(); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestScalingRecordsEvents(t *testing.T) {
	for name, c := range map[string]struct {
		d    *appsv1.Deployment
		sets func(d *appsv1.Deployment) []*appsv1.ReplicaSet
		want []string
	}{
		"a set is made": {web(2, "a:1"), nil, []string{"Normal ScalingReplicaSet Scaled up " +
			"replica set new from 0 to 2"}},
		"a set is made that has nothing yet": {web(0, "a:1"), nil, nil},
		"one goes up": {web(3, "a:1"), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "first", "a:1", "1", 2), 2)}
		}, []string{"Normal ScalingReplicaSet Scaled up replica set first from 2 to 3"}},
		"one goes down": {web(1, "a:1"), func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{withSizeAnnotations(webSet(d, "first", "a:1", "1", 2), 2)}
		}, []string{"Normal ScalingReplicaSet Scaled down replica set first from 2 to 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var sets []*appsv1.ReplicaSet
			if c.sets != nil {
				sets = c.sets(c.d)
			}
			w := newTestCluster(t, c.d, sets...)
			w.requireNoError(w.sync())
			recorded := w.recordedEvents()
			for i := range recorded {
				for _, word := range strings.Fields(recorded[i]) {
					if strings.HasPrefix(word, "web-") {
						recorded[i] = strings.ReplaceAll(recorded[i], word, "new")
					}
				}
			}
			if !slices.Equal(recorded, c.want) {
				t.Errorf("got %q, want %q", recorded, c.want)
			}
		})
	}
}

// While a deployment is paused, everything that is not a rollout is done: the new set gets the deployment's annotations
// and minReadySeconds, and old sets are deleted.
func TestPausedDeploymentsAreMaintained(t *testing.T) {
	d := web(2, "a:4")
	d.Spec.Paused, d.Spec.MinReadySeconds, d.Spec.RevisionHistoryLimit, d.Annotations = true, 7, ptr.To[int32](
		1,
	), map[string]string{
		"team": "books",
	}
	var sets []*appsv1.ReplicaSet
	for i, n := range []int32{0, 0, 0, 2} {
		sets = append(sets, webSet(d, fmt.Sprint("s", i+1), fmt.Sprint("a:", i+1), fmt.Sprint(i+1), n))
	}
	w := newTestCluster(t, d, sets...)
	w.requireNoError(w.sync())
	if got, want := slices.Sorted(maps.Keys(w.sets())), []string{"s3", "s4"}; !slices.Equal(got, want) {
		t.Errorf("sets %v, want %v", got, want)
	}
	set, err := w.client.AppsV1().ReplicaSets("shop").Get(t.Context(), "s4", metav1.GetOptions{})
	w.requireNoError(err)
	if set.Spec.MinReadySeconds != 7 || set.Annotations["team"] != "books" ||
		w.deployment().Annotations[revisionAnnotation] != "4" {
		t.Errorf("minReadySeconds %d, annotations %v, the deployment's %v", set.Spec.MinReadySeconds, set.Annotations,
			w.deployment().Annotations)
	}
}

func TestRevisionHistoryRecordsRollbacks(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("10,", 667), ",") // 2000 bytes
	for name, c := range map[string]struct{ before, want string }{
		"the first time":               {"", "1"},
		"once more":                    {"7", "7,1"},
		"no more than 2000 characters": {long, strings.TrimPrefix(long, "10,") + ",1"},
	} {
		d := web(2, "a:1")
		first := webSet(d, "first", "a:1", "1", 0)
		if c.before != "" {
			first.Annotations[historyAnnotation] = c.before
		}
		w := newTestCluster(t, d, first, webSet(d, "second", "a:2", "2", 2))
		w.requireNoError(w.sync())
		set, err := w.client.AppsV1().ReplicaSets("shop").Get(t.Context(), "first", metav1.GetOptions{})
		w.requireNoError(err)
		if got := set.Annotations[historyAnnotation]; got != c.want || set.Annotations[revisionAnnotation] != "3" {
			t.Errorf("%s: revision %s after %q", name, set.Annotations[revisionAnnotation], got)
		}
	}
}
