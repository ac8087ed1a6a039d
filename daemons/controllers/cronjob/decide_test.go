package cronjob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestWhenAJobIsDue(t *testing.T) {
	for _, row := range []struct {
		name, schedule, zone string
		created, last, now   string
		deadline             *int64
		due                  string
		many                 bool
	}{
		{name: "not yet", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", now: "2026-11-23T10:59:59Z"},
		{name: "now", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", now: "2026-11-23T11:00:00Z", due: "2026-11-23T11:00:00Z"},
		{name: "done", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", last: "2026-11-23T11:00:00Z", now: "2026-11-23T11:30:00Z"},
		{name: "the last of those missed", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", now: "2026-11-23T15:30:00Z", due: "2026-11-23T15:00:00Z"},
		{name: "a hundred missed", schedule: "* * * * *", created: "2026-11-23T10:00:00Z", now: "2026-11-23T11:40:30Z", due: "2026-11-23T11:40:00Z"},
		{name: "more", schedule: "* * * * *", created: "2026-11-23T10:00:00Z", now: "2026-11-23T11:41:30Z", due: "2026-11-23T11:41:00Z", many: true},
		{name: "years of minutes", schedule: "* * * * *", created: "2006-11-23T10:00:00Z", now: "2026-11-23T11:41:30Z", due: "2026-11-23T11:41:00Z", many: true},
		{name: "years of weeks", schedule: "0 0 * * 0", created: "2006-11-23T10:00:00Z", now: "2026-11-23T11:41:30Z", due: "2026-11-22T00:00:00Z", many: true},
		{name: "leap days", schedule: "0 0 29 2 *", created: "2006-11-23T10:00:00Z", now: "2027-11-23T11:41:30Z", due: "2024-02-29T00:00:00Z"},
		{name: "no such day", schedule: "0 0 31 2 *", created: "2006-11-23T10:00:00Z", now: "2026-11-23T11:41:30Z"},
		{name: "within the deadline", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", now: "2026-11-23T12:00:30Z", deadline: ptr.To(int64(60)), due: "2026-11-23T12:00:00Z"},
		{name: "after the deadline", schedule: "0 * * * *", created: "2026-11-23T10:15:00Z", now: "2026-11-23T12:01:30Z", deadline: ptr.To(int64(60))},
		{name: "a deadline bounds what was missed", schedule: "* * * * *", created: "2006-11-23T10:15:00Z", now: "2026-11-23T12:00:30Z", deadline: ptr.To(int64(600)), due: "2026-11-23T12:00:00Z"},
		{name: "a zone", schedule: "30 6 * * *", zone: "Europe/Berlin", created: "2026-11-22T10:00:00Z", now: "2026-11-23T05:30:01Z", due: "2026-11-23T05:30:00Z"},
		{name: "in summer", schedule: "30 6 * * *", zone: "Europe/Berlin", created: "2026-07-22T10:00:00Z", now: "2026-07-23T04:30:01Z", due: "2026-07-23T04:30:00Z"},
		{name: "every so often", schedule: "@every 90m", created: "2026-11-23T10:00:00Z", now: "2026-11-23T13:10:00Z", due: "2026-11-23T13:00:00Z"},
		{name: "not yet, every so often", schedule: "@every 90m", created: "2026-11-23T10:00:00Z", now: "2026-11-23T11:29:59Z"},
		{name: "daily", schedule: "@daily", created: "2026-11-22T10:00:00Z", now: "2026-11-23T13:10:00Z", due: "2026-11-23T00:00:00Z"},
	} {
		c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: at(t, row.created)}}}
		c.Spec.Schedule, c.Spec.StartingDeadlineSeconds = row.schedule, row.deadline
		c.Spec.TimeZone = ptr.To("UTC")
		if row.zone != "" {
			c.Spec.TimeZone = &row.zone
		}
		if row.last != "" {
			c.Status.LastScheduleTime = &metav1.Time{Time: at(t, row.last)}
		}
		s, err := ScheduleOf(c)
		if err != nil {
			t.Fatal(err)
		}
		due, many := s.Due(c, at(t, row.now))
		if !due.Equal(at(t, row.due)) || many != row.many {
			t.Errorf("%s: due at %s, many %t; want %q, %t", row.name, due.UTC().Format(time.RFC3339), many, row.due, row.many)
		}
	}
}

func TestAScheduleThatCannotBeReadSaysWhy(t *testing.T) {
	for _, row := range []struct {
		schedule, zone string
		want           error
		says           string
	}{
		{"61 * * * *", "UTC", ErrSchedule, `unparseable schedule: "61 * * * *"`},
		{"0 * * * *", "Moon/Sea", ErrZone, `unknown time zone "Moon/Sea"`},
	} {
		_, err := ScheduleOf(&batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: row.schedule, TimeZone: &row.zone}})
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s %s: %v", row.schedule, row.zone, err)
		}
	}
}

func jobOf(n int, how batchv1.JobConditionType) *batchv1.Job {
	start := time.Date(2026, 11, 23, 10, n, 0, 0, time.UTC)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("j-%d", n), UID: types.UID(fmt.Sprint(n)), CreationTimestamp: metav1.Time{Time: start}}}
	if how != "" {
		job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue}}
		job.Status.StartTime = &metav1.Time{Time: start}
	}
	if how == batchv1.JobComplete {
		job.Status.CompletionTime = &metav1.Time{Time: start.Add(30 * time.Second)}
	}
	return job
}

func ref(n int) corev1.ObjectReference {
	return corev1.ObjectReference{Name: fmt.Sprintf("j-%d", n), UID: types.UID(fmt.Sprint(n))}
}

func TestTheStatusSaysWhichJobsRun(t *testing.T) {
	status := batchv1.CronJobStatus{Active: []corev1.ObjectReference{ref(1), ref(2), ref(3), ref(4)}}
	jobs := []*batchv1.Job{jobOf(1, batchv1.JobComplete), jobOf(2, batchv1.JobFailed), jobOf(3, ""), jobOf(5, ""), jobOf(0, batchv1.JobComplete)}
	var said []string
	for _, e := range Account(&status, jobs, []types.UID{"4"}) {
		said = append(said, e.Reason+" "+e.Message)
	}
	want := []string{"SawCompletedJob Saw completed job: j-1, condition: Complete", "SawCompletedJob Saw completed job: j-2, condition: Failed",
		"UnexpectedJob Saw a job that the controller did not create or forgot: j-5", "MissingJob Active job went missing: j-4"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q", said)
	}
	if len(status.Active) != 1 || status.Active[0].UID != "3" {
		t.Errorf("active are %v", status.Active)
	}
	if got := status.LastSuccessfulTime; got == nil || !got.Equal(jobs[0].Status.CompletionTime) {
		t.Errorf("the last that succeeded did so at %v", got)
	}
	// It does not go back when the job that succeeded is deleted.
	if Account(&status, []*batchv1.Job{jobOf(3, ""), jobOf(0, batchv1.JobComplete)}, nil); !status.LastSuccessfulTime.Equal(jobs[0].Status.CompletionTime) {
		t.Errorf("then at %v", status.LastSuccessfulTime)
	}
}

func TestTheHistoryKeepsTheLast(t *testing.T) {
	var jobs []*batchv1.Job
	for n := range 6 {
		jobs = append(jobs, jobOf(5-n, batchv1.JobComplete), jobOf(15-n, batchv1.JobFailed))
	}
	jobs = append(jobs, jobOf(30, ""))
	for _, row := range []struct {
		succeeded, failed *int32
		want              string
	}{
		{ptr.To(int32(3)), ptr.To(int32(1)), "[j-0 j-1 j-2 j-10 j-11 j-12 j-13 j-14]"},
		{ptr.To(int32(0)), nil, "[j-0 j-1 j-2 j-3 j-4 j-5]"},
		{ptr.To(int32(10)), ptr.To(int32(6)), "[]"},
		{nil, nil, "[]"},
	} {
		var names []string
		for _, job := range Outdated(&batchv1.CronJob{Spec: batchv1.CronJobSpec{SuccessfulJobsHistoryLimit: row.succeeded, FailedJobsHistoryLimit: row.failed}}, jobs) {
			names = append(names, job.Name)
		}
		if got := fmt.Sprint(names); got != row.want {
			t.Errorf("%v %v: %s, want %s", row.succeeded, row.failed, got, row.want)
		}
	}
}

func TestAJobIsNamedAfterItsTime(t *testing.T) {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "u"}}
	c.Spec.Schedule, c.Spec.TimeZone = "0 * * * *", ptr.To("Europe/Berlin")
	c.Spec.JobTemplate.Labels, c.Spec.JobTemplate.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	s, err := ScheduleOf(c)
	if err != nil {
		t.Fatal(err)
	}
	job := newJob(c, s, at(t, "2026-11-23T11:00:00Z"))
	if job.Name != "c-29923860" || job.Namespace != "n" || job.Labels["a"] != "b" || job.Annotations["c"] != "d" || !metav1.IsControlledBy(job, c) {
		t.Errorf("it is %+v", job.ObjectMeta)
	}
	if got := job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]; got != "2026-11-23T12:00:00+01:00" {
		t.Errorf("its time is %s", got)
	}
	if c.Spec.JobTemplate.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] != "" {
		t.Error("the template was changed")
	}
}
