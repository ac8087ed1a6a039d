package deployment

import (
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// The test covers every reason of the Progressing condition.
//
//style:long a table with a case for each reason
func TestProgressingConditionReasons(t *testing.T) {
	const progressing = appsv1.DeploymentProgressing
	for _, c := range []struct {
		name  string
		world func() (*appsv1.Deployment, []*appsv1.ReplicaSet)
		after time.Duration
		want  string // regular expression
	}{
		{"the first set is made", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) { return web(2, "a:1"), nil }, 0,
			`^True NewReplicaSetCreated: Created new replica set "web-[a-z0-9]+"$`},
		{"a set for another template is made", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCounts(withCondition(web(2, "a:2"), progressing, "True", "NewReplicaSetAvailable"), 2, 2)
			return d, []*appsv1.ReplicaSet{webSet(d, "old", "a:1", "1", 2)}
		}, 0, `^True NewReplicaSetCreated: Created new replica set "web-[a-z0-9]+"$`},
		{"a set is there before progress is asked for", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := web(2, "a:1")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^True FoundNewReplicaSet: Found new replica set "first"$`},
		{"a pod has become available", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "NewReplicaSetCreated")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 1, 1,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^True ReplicaSetUpdated: ReplicaSet "first" is progressing\.$`},
		{"all pods are available", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "ReplicaSetUpdated")
			return d, []*appsv1.ReplicaSet{webSet(d, "first", "a:1", "1", 2)}
		}, 0, `^True NewReplicaSetAvailable: ReplicaSet "first" has successfully progressed\.$`},
		{"a finished rollout is made larger", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(4, "a:1"), progressing, "True", "NewReplicaSetAvailable")
			d.Generation, d.Status.ObservedGeneration = 2, 1
			set := webSet(d, "first", "a:1", "1", 4)
			set.Status.AvailableReplicas, d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^True NewReplicaSetAvailable: before$`},
		{"a finished rollout's pods fail for longer than the deadline",
			func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
				d := withCondition(web(2, "a:1"), progressing, "True", "NewReplicaSetAvailable")
				d.Generation, d.Status.ObservedGeneration = 2, 1
				set := webSet(d, "first", "a:1", "1", 2)
				set.Status.AvailableReplicas = 0
				return d, []*appsv1.ReplicaSet{set}
			}, time.Hour, `^True NewReplicaSetAvailable: before$`},
		{"nothing has moved until the deadline", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "ReplicaSetUpdated")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, 601 * time.Second, `^False ProgressDeadlineExceeded: ReplicaSet "first" has timed out progressing\.$`},
		{"an edit that starts nothing is no progress", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "ReplicaSetUpdated")
			d.Generation, d.Status.ObservedGeneration = 2, 1
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, 601 * time.Second, `^False ProgressDeadlineExceeded: `},
		{"Recreate waits for its old pods", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCounts(withCondition(web(2, "a:2"), progressing, "True", "ReplicaSetUpdated"), 2, 2)
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			return d, []*appsv1.ReplicaSet{webSet(d, "old", "a:1", "1", 2)}
		}, 601 * time.Second, `^False ProgressDeadlineExceeded: Deployment "web" has timed out progressing\.$`},
		{"it is paused", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "NewReplicaSetAvailable")
			d.Spec.Paused = true
			return d, []*appsv1.ReplicaSet{webSet(d, "first", "a:1", "1", 2)}
		}, 0, `^Unknown DeploymentPaused: Deployment is paused$`},
		{"it is paused when its deadline has passed", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "False", "ProgressDeadlineExceeded")
			d.Spec.Paused = true
			return d, []*appsv1.ReplicaSet{webSet(d, "first", "a:1", "1", 2)}
		}, 0, `^False ProgressDeadlineExceeded: before$`},
		{"it goes on", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "Unknown", "DeploymentPaused")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, time.Hour, `^Unknown DeploymentResumed: Deployment is resumed$`},
		{"it is only scaled, while its deadline has passed", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(3, "a:1"), progressing, "True", "ReplicaSetUpdated")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Annotations[desiredAnnotation] = "2"
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, time.Hour, `^True ReplicaSetUpdated: before$`},
		{"it is only scaled, while pods become available", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(3, "a:1"), progressing, "False", "ProgressDeadlineExceeded")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Annotations[desiredAnnotation] = "2"
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^False ProgressDeadlineExceeded: before$`},
		{"it is scaled as it goes on", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(3, "a:1"), progressing, "Unknown", "DeploymentPaused")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Annotations[desiredAnnotation] = "2"
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^Unknown DeploymentResumed: Deployment is resumed$`},
		{"it is scaled before progress is asked for", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := web(3, "a:1")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Annotations[desiredAnnotation] = "2"
			return d, []*appsv1.ReplicaSet{set}
		}, 0, `^True FoundNewReplicaSet: Found new replica set "first"$`},
		{"it is being deleted when its deadline passes", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "ReplicaSetUpdated")
			d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(began)), []string{"example.com/wait"}
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = 0, 0,
				2, 2
			return d, []*appsv1.ReplicaSet{set}
		}, time.Hour, `^True ReplicaSetUpdated: before$`},
		{"it is paused and being deleted", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "NewReplicaSetAvailable")
			d.Spec.Paused, d.DeletionTimestamp, d.Finalizers = true, ptr.To(metav1.NewTime(began)),
				[]string{"example.com/wait"}
			return d, []*appsv1.ReplicaSet{webSet(d, "first", "a:1", "1", 2)}
		}, 0, `^True NewReplicaSetAvailable: before$`},
		{"no deadline is set", func() (*appsv1.Deployment, []*appsv1.ReplicaSet) {
			d := withCondition(web(2, "a:1"), progressing, "True", "NewReplicaSetAvailable")
			d.Spec.ProgressDeadlineSeconds = ptr.To[int32](1<<31 - 1)
			return d, []*appsv1.ReplicaSet{webSet(d, "first", "a:1", "1", 2)}
		}, 0, `^$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, sets := c.world()
			w := newTestCluster(t, d, sets...)
			w.clock.Step(c.after)
			w.requireNoError(w.sync())
			if got := w.condition(progressing); !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A status without changes is not written: each write would queue the deployment again.
func TestUnchangedStatusesAreNotWritten(t *testing.T) {
	for name, c := range map[string]struct {
		fails  bool
		reason string
	}{
		"past its deadline":        {false, "ProgressDeadlineExceeded"},
		"whose set cannot be made": {true, "ReplicaSetCreateError"},
	} {
		t.Run(name, func(t *testing.T) {
			d := withCondition(web(2, "a:1"), appsv1.DeploymentProgressing, "True", "ReplicaSetUpdated")
			var sets []*appsv1.ReplicaSet
			if !c.fails {
				set := webSet(d, "first", "a:1", "1", 2)
				set.Status.AvailableReplicas, set.Status.ReadyReplicas = 0, 0
				d.Status.UpdatedReplicas, d.Status.Replicas = 2, 2
				sets = append(sets, set)
			}
			w := newTestCluster(t, d, sets...)
			w.client.PrependReactor("create", "replicasets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return c.fails, nil, errors.New("no")
			})
			w.clock.Step(time.Hour)
			for range 3 {
				if err := w.sync(); (err != nil) != c.fails {
					t.Fatal(err)
				}
				w.clock.Step(time.Minute)
			}
			written := 0
			for _, a := range w.client.Actions() {
				if a.Matches("update", "deployments") {
					written++
				}
			}
			progressing := findCondition(w.deployment().Status, appsv1.DeploymentProgressing)
			if progressing == nil || progressing.Reason != c.reason || written != 1 ||
				!progressing.LastUpdateTime.Equal(ptr.To(metav1.NewTime(began.Add(time.Hour)))) {
				t.Errorf("%d writes of the status, which says %+v", written, progressing)
			}
		})
	}
}

func TestFailedSetCreationNamesTheSet(t *testing.T) {
	w := newTestCluster(t, web(2, "a:1"))
	w.client.PrependReactor("create", "replicasets",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	if err := w.sync(); err == nil {
		t.Error("it is not tried again")
	}
	message := `Failed to create new replica set "web-[a-z0-9]+": no$`
	want := regexp.MustCompile("^False ReplicaSetCreateError: " + message)
	if got := w.condition(appsv1.DeploymentProgressing); !want.MatchString(got) {
		t.Errorf("Progressing says %q", got)
	}
	if got := w.condition(appsv1.DeploymentReplicaFailure); got != "" {
		t.Errorf("ReplicaFailure, which is about pods, says %q", got)
	}
	if recorded := w.recordedEvents(); len(recorded) != 1 ||
		!regexp.MustCompile("^Warning ReplicaSetCreateError "+message).MatchString(recorded[0]) {
		t.Errorf("events: %q", recorded)
	}
}

func TestReplicaFailureIsCopiedFromTheNewSet(t *testing.T) {
	fails := func(set *appsv1.ReplicaSet, message string) *appsv1.ReplicaSet {
		set.Status.Conditions = []appsv1.ReplicaSetCondition{
			{Type: appsv1.ReplicaSetReplicaFailure, Status: "True", Reason: "FailedCreate", Message: message},
		}
		return set
	}
	for name, c := range map[string]struct {
		existed bool
		world   func(d *appsv1.Deployment) []*appsv1.ReplicaSet
		want    string
	}{
		"both fail": {false, func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{fails(webSet(d, "a-old", "a:1", "1", 1), "old"),
				fails(webSet(d, "b-new", "a:2", "2", 1), "new"), fails(webSet(d, "c-older", "a:0", "3", 0), "older")}
		}, "True FailedCreate: new"},
		"an old one fails": {false, func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{fails(webSet(d, "old", "a:1", "1", 1), "old"), webSet(d, "new", "a:2", "2", 1)}
		}, "True FailedCreate: old"},
		"none fails any more": {true, func(d *appsv1.Deployment) []*appsv1.ReplicaSet {
			return []*appsv1.ReplicaSet{webSet(d, "new", "a:2", "2", 2)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for range 8 { // sets are listed in random order
				d := web(2, "a:2")
				if c.existed {
					withCondition(d, appsv1.DeploymentReplicaFailure, "True", "FailedCreate")
				}
				w := newTestCluster(t, d, c.world(d)...)
				w.requireNoError(w.sync())
				if got := w.condition(appsv1.DeploymentReplicaFailure); got != c.want {
					t.Fatalf("got %q, want %q", got, c.want)
				}
			}
		})
	}
}

func TestAvailableConditionRespectsMaxUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		available int32
		want      string
	}{
		"enough":  {2, "True MinimumReplicasAvailable: Deployment has minimum availability."},
		"too few": {1, "False MinimumReplicasUnavailable: Deployment does not have minimum availability."},
	} {
		t.Run(name, func(t *testing.T) {
			d := web(2, "a:1")
			set := webSet(d, "first", "a:1", "1", 2)
			set.Status.AvailableReplicas, set.Status.TerminatingReplicas = c.available, ptr.To[int32](3)
			w := newTestCluster(t, d, set)
			w.requireNoError(w.sync())
			if got := w.condition(appsv1.DeploymentAvailable); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			s := w.deployment().Status
			counts := []int32{
				s.Replicas,
				s.UpdatedReplicas,
				s.ReadyReplicas,
				s.AvailableReplicas,
				s.UnavailableReplicas,
				*s.TerminatingReplicas,
				int32(s.ObservedGeneration),
			}
			if want := []int32{2, 2, 2, c.available, 2 - c.available, 3, 1}; !slices.Equal(counts, want) {
				t.Errorf("counts %v, want %v", counts, want)
			}
		})
	}
}

// A set that was never synced has no pods. A set that was synced and reports no number may have some.
func TestTerminatingReplicasAreUnknownIfASetDoesNotReportThem(t *testing.T) {
	for name, c := range map[string]struct {
		observed int64
		want     *int32
	}{
		"not yet looked at":     {0, ptr.To[int32](2)},
		"looked at, no account": {1, nil},
	} {
		d := web(2, "a:2")
		silent, tells := webSet(d, "silent", "a:1", "1", 0), webSet(d, "tells", "a:2", "2", 2)
		silent.Status.ObservedGeneration, silent.Status.TerminatingReplicas,
			tells.Status.TerminatingReplicas = c.observed, nil, ptr.To[int32](2)
		w := newTestCluster(t, d, silent, tells)
		w.requireNoError(w.sync())
		if got := w.deployment().Status.TerminatingReplicas; !ptr.Equal(got, c.want) {
			t.Errorf("%s: %v", name, ptr.Deref(got, -1))
		}
	}
}

// While nothing is rolled out, the counts and the Available condition are updated, and the Progressing condition stays.
func TestCountsAreUpdatedWithoutARollout(t *testing.T) {
	for name, change := range map[string]func(d *appsv1.Deployment, set *appsv1.ReplicaSet){
		"scaled": func(_ *appsv1.Deployment, set *appsv1.ReplicaSet) { set.Annotations[desiredAnnotation] = "2" },
		"paused": func(d *appsv1.Deployment, _ *appsv1.ReplicaSet) { d.Spec.Paused = true },
		"deleted": func(d *appsv1.Deployment, _ *appsv1.ReplicaSet) {
			d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(began)), []string{"example.com/wait"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := withCondition(withCondition(web(3, "a:1"), appsv1.DeploymentReplicaFailure, "True", "FailedCreate"),
				appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded")
			d.Generation = 2
			set := webSet(d, "first", "a:1", "1", 3)
			change(d, set)
			w := newTestCluster(t, d, set)
			w.requireNoError(w.sync())
			if got := w.condition(appsv1.DeploymentAvailable); got != "True MinimumReplicasAvailable: Deployment has "+
				"minimum availability." {
				t.Errorf("Available says %q", got)
			}
			if got := w.condition(appsv1.DeploymentReplicaFailure); got != "True FailedCreate: before" {
				t.Errorf("ReplicaFailure says %q", got)
			}
			if s := w.deployment().Status; s.ObservedGeneration != 2 || s.Replicas != 3 || s.AvailableReplicas != 3 {
				t.Errorf("the status is %+v", s)
			}
		})
	}
}

// Old sets beyond the limit are deleted when a rollout is complete and while it is paused, but not because of scaling.
func TestScalingDeletesNoOldSets(t *testing.T) {
	for paused, want := range map[bool]int{false: 2, true: 1} {
		d := web(3, "a:2")
		d.Spec.RevisionHistoryLimit, d.Spec.Paused = ptr.To[int32](0), paused
		old, now := webSet(d, "old", "a:1", "1", 0), webSet(d, "now", "a:2", "2", 2)
		now.Annotations[desiredAnnotation] = "2"
		w := newTestCluster(t, d, old, now)
		w.requireNoError(w.sync())
		if got := w.sets(); len(got) != want || got["now"] != 3 {
			t.Errorf("paused %v: there are %v", paused, got)
		}
	}
}
