package cronjob

import (
	"log/slog"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// The job of 03:00 has run. If the schedule changes to 04:00 at 10:00, the next job runs tomorrow.
func TestANewScheduleIgnoresEarlierTimes(t *testing.T) {
	before := cronJob(parseTime(t, "2026-03-01T00:00:00Z"), "0 3 * * *")
	before.Status.LastScheduleTime = &metav1.Time{Time: parseTime(t, "2026-03-05T03:00:00Z")}
	for name, row := range map[string]struct {
		change func(*batchv1.CronJob)
		waits  time.Duration // zero means that it is queued at once
	}{
		"another schedule": {func(cj *batchv1.CronJob) { cj.Spec.Schedule = "0 4 * * *" }, 18*time.Hour + timerSlack},
		"another zone": {func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Asia/Tokyo") }, 8*time.Hour +
			timerSlack},
		"a zone that is none": {func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Moon/Sea") }, 0},
		"no schedule":         {func(cj *batchv1.CronJob) { cj.Spec.Schedule = "61 * * * *" }, 0},
		"suspended":           {func(cj *batchv1.CronJob) { cj.Spec.Suspend = ptr.To(true) }, 0},
	} {
		clock := clocktesting.NewFakeClock(parseTime(t, "2026-03-05T10:00:00Z"))
		client := fake.NewClientset()
		j, ok := New(loop.Context{Client: client, Informers: informers.New(client), Log: slog.New(slog.DiscardHandler),
			Events: record.NewFakeRecorder(1), Clock: clock}).(*controller)
		if !ok {
			t.Fatal("it is no controller of CronJobs")
		}
		after := before.DeepCopy()
		row.change(after)
		j.enqueueChanged(before, after)
		if row.waits == 0 {
			if j.Queue().Len() != 1 {
				t.Errorf("%s: it is not looked at", name)
			}
			j.Queue().ShutDown()
			continue
		}
		if j.Queue().Len() != 0 {
			t.Errorf("%s: it is looked at at once", name)
		}
		if wait, ok := untilNext(after, clock.Now()); !ok || wait != row.waits {
			t.Errorf("%s: it waits for %s, want %s", name, wait, row.waits)
		}
		for j.Queue().Len() == 0 { // the queue's goroutine sets its timer concurrently
			clock.Step(row.waits)
		}
		if key, _ := j.Queue().Get(); key != "n/c" {
			t.Errorf("%s: then %q is looked at", name, key)
		}
		j.Queue().ShutDown()
	}
}
