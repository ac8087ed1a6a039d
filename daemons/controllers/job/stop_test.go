package job

import (
	"log/slog"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// A pod that the controller itself stops has not failed, and must not count against the backoffLimit. Only the pods of
// a failing job are counted.
func TestPodsStoppedByTheControllerAreNotCounted(t *testing.T) {
	labels := map[string]string{"job": "j"}
	for name, c := range map[string]struct {
		change  func(*batchv1.Job)
		stopped int
		tracked bool // at their deletion
	}{
		"too many":  {change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](1) }, stopped: 2},
		"suspended": {change: func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }, stopped: 3},
		"enough": {change: func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet,
				Status: corev1.ConditionTrue}}
		}, stopped: 3},
		"failed": {change: func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
		}, stopped: 3, tracked: true},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"},
				Spec: batchv1.JobSpec{
					Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), BackoffLimit: ptr.To[int32](0),
					Selector: &metav1.LabelSelector{MatchLabels: labels}},
			}
			c.change(job)
			objects := []runtime.Object{job}
			for _, pod := range []string{"a", "b", "c"} {
				objects = append(
					objects,
					&corev1.Pod{
						ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: pod, UID: types.UID(pod), Labels: labels,
							Finalizers: []string{
								batchv1.JobTrackingFinalizer,
							}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, kind)}},
						Spec:   corev1.PodSpec{NodeName: "node"},
						Status: corev1.PodStatus{Phase: corev1.PodRunning},
					},
				)
			}
			client := fake.NewClientset(objects...)
			var stopped []bool // whether each was tracked at its deletion
			client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				pod, err := client.Tracker().
					Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.DeleteAction).GetName())
				if err != nil {
					return true, nil, err
				}
				stopped = append(stopped, isTracked(pod.(*corev1.Pod)))
				return false, nil, nil
			})
			factory := informers.New(client)
			j := New(loop.Context{Client: client, Informers: factory, Events: record.NewFakeRecorder(100),
				Log: slog.New(slog.DiscardHandler)}).(*controller)
			factory.StartWithContext(t.Context())
			factory.WaitForCacheSync(t.Context().Done())
			if err := j.sync(t.Context(), "n/j"); err != nil {
				t.Fatal(err)
			}
			if len(stopped) != c.stopped || slices.Contains(stopped, !c.tracked) {
				t.Errorf("stopped and tracked: %v, want %d, tracked %t", stopped, c.stopped, c.tracked)
			}
		})
	}
}

func TestExcessPodsAreReported(t *testing.T) {
	for succeeded, want := range map[int32][]string{
		2: {"Normal Completed Job completed"},
		3: {"Warning TooManySucceededPods Too many succeeded pods running after completion count " +
			"reached", "Normal Completed Job completed"},
	} {
		events := record.NewFakeRecorder(10)
		j := &controller{Context: loop.Context{Events: events}}
		j.recordEvents(
			&batchv1.Job{
				Spec: batchv1.JobSpec{Completions: ptr.To[int32](2)},
				Status: batchv1.JobStatus{Succeeded: succeeded,
					Conditions: []batchv1.JobCondition{
						{Type: batchv1.JobComplete, Status: corev1.ConditionTrue},
					}},
			},
			&batchv1.JobStatus{},
		)
		var got []string
		for len(events.Events) > 0 {
			got = append(got, <-events.Events)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d have succeeded: %q, want %q", succeeded, got, want)
		}
	}
}

// A pod that the watch delivers during a sync is neither missed nor created twice, because expectations are checked
// first.
func TestPodsDeliveredDuringASyncAreNotCreatedTwice(t *testing.T) {
	labels := map[string]string{"job": "j"}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](1), Parallelism: ptr.To[int32](1), BackoffLimit: ptr.To[int32](0),
		Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	// Before the controller adopts this pod, it reads the job from the API, which takes a while.
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "orphan", UID: "o", Labels: labels}}
	client := fake.NewClientset(job, orphan)
	factory := informers.New(client)
	j := New(loop.Context{Client: client, Informers: factory, Events: record.NewFakeRecorder(100),
		Log: slog.New(slog.DiscardHandler)}).(*controller)
	client.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		j.expect.Created("n/j") // the watch delivers the pod that was created before
		another := job.DeepCopy()
		another.UID = "another"
		return true, another, nil
	})
	made := 0
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		made++
		return false, nil, nil
	})
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	j.expect.Expect("n/j", 1)
	if err := j.sync(t.Context(), "n/j"); err != nil {
		t.Fatal(err)
	}
	if made > 0 {
		t.Error("a second pod was made beside the one that was expected")
	}
	if err := j.sync(t.Context(), "n/j"); err != nil || made != 1 {
		t.Errorf("once nothing is expected %d pods were made, %v", made, err)
	}
}
