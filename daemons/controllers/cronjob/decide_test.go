package cronjob

import (
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

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func cronJob(created time.Time, schedule string) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", UID: "u", CreationTimestamp: metav1.NewTime(created)},
		Spec: batchv1.CronJobSpec{
			Schedule:          schedule,
			TimeZone:          ptr.To("Etc/UTC"),
			ConcurrencyPolicy: batchv1.AllowConcurrent,
		},
	}
}

// jobAt returns the job of a scheduled time as stored in the cluster.
func jobAt(cj *batchv1.CronJob, scheduled time.Time, end batchv1.JobConditionType) *batchv1.Job {
	job := newJob(cj, scheduled)
	job.UID = types.UID(job.Name)
	job.CreationTimestamp = metav1.NewTime(scheduled)
	finishJob(job, end, scheduled.Add(30*time.Second))
	return job
}

func finishJob(job *batchv1.Job, end batchv1.JobConditionType, when time.Time) {
	if end == "" {
		return
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue}}
	if end == batchv1.JobComplete {
		job.Status.CompletionTime = &metav1.Time{Time: when}
	}
}

//style:long a table of cron jobs and times, with the decision on each
func TestDecisions(t *testing.T) {
	running := func(scheduled string) func(*testing.T, *batchv1.CronJob) []*batchv1.Job {
		return func(t *testing.T, cj *batchv1.CronJob) []*batchv1.Job {
			return []*batchv1.Job{jobAt(cj, parseTime(t, scheduled), "")}
		}
	}
	for name, c := range map[string]struct {
		schedule string // empty means every hour
		now      string // empty means 10:30:20 on the 5th
		change   func(*batchv1.CronJob)
		jobs     func(*testing.T, *batchv1.CronJob) []*batchv1.Job
		starts   string // empty means no job
		stops    int
		again    time.Duration
		events   string // reasons of events
	}{
		"nothing is due yet": {now: "2026-03-05T09:59:59Z", again: time.Second},
		"at the time itself": {now: "2026-03-05T10:00:00Z", starts: "2026-03-05T10:00:00Z", again: time.Hour},
		"late":               {starts: "2026-03-05T10:00:00Z", again: 29*time.Minute + 40*time.Second},
		"@hourly": {schedule: "@hourly", starts: "2026-03-05T10:00:00Z", again: 29*time.Minute +
			40*time.Second},
		"@daily": {schedule: "@daily", now: "2026-03-06T00:00:01Z", starts: "2026-03-06T00:00:00Z",
			again: 24*time.Hour - time.Second},
		"@every": {schedule: "@every 7m", starts: "2026-03-05T10:30:00Z", again: 6*time.Minute +
			40*time.Second},
		"names of days and months": {schedule: "15 10 * mar thu", starts: "2026-03-05T10:15:00Z",
			again: 7*24*time.Hour - 15*time.Minute - 20*time.Second},
		"only the latest of those that were missed": {schedule: "*/10 * * * *", starts: "2026-03-05T10:30:00Z",
			again: 9*time.Minute + 40*time.Second},
		"more than a hundred missed": {schedule: "* * * * *", now: "2026-03-06T10:30:20Z",
			starts: "2026-03-06T10:30:00Z", again: 40 * time.Second,
			events: "TooManyMissedTimes"},
		"a deadline leaves few missed": {schedule: "* * * * *", now: "2026-03-06T10:30:20Z",
			starts: "2026-03-06T10:30:00Z", again: 40 * time.Second,
			change: func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = ptr.To[int64](300) }},
		"within the deadline": {change: func(cj *batchv1.CronJob) {
			cj.Spec.StartingDeadlineSeconds = ptr.To[int64](1820)
		},
			starts: "2026-03-05T10:00:00Z", again: 29*time.Minute + 40*time.Second},
		"beyond the deadline": {change: func(cj *batchv1.CronJob) {
			cj.Spec.StartingDeadlineSeconds = ptr.To[int64](1819)
		},
			again: 29*time.Minute + 40*time.Second, events: "MissSchedule"},
		"a deadline without end": {change: func(cj *batchv1.CronJob) {
			cj.Spec.StartingDeadlineSeconds = ptr.To[int64](1 << 62)
		},
			starts: "2026-03-05T10:00:00Z", again: 29*time.Minute + 40*time.Second},
		"suspended": {change: func(cj *batchv1.CronJob) { cj.Spec.Suspend = ptr.To(true) }},
		"being deleted": {change: func(cj *batchv1.CronJob) {
			cj.DeletionTimestamp = &metav1.Time{Time: time.Unix(1,
				0)}
		}},
		"unknown zone": {change: func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Moon/Sea") },
			events: "UnknownTimeZone"},
		"no schedule":       {schedule: "61 * * * *", events: "UnparseableSchedule"},
		"a zone alone":      {schedule: "TZ=UTC", events: "UnsupportedSchedule UnparseableSchedule"},
		"a day that is not": {schedule: "0 0 30 2 *", events: "InvalidSchedule"},
		"a zone inside": {schedule: "CRON_TZ=Asia/Tokyo 0 19 * * *", starts: "2026-03-05T10:00:00Z",
			again:  23*time.Hour + 29*time.Minute + 40*time.Second,
			events: "UnsupportedSchedule"},
		"another zone": {schedule: "30 5 * * *",
			change: func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("America/New_York") },
			starts: "2026-03-05T05:30:00-05:00", again: 24*time.Hour - 20*time.Second},
		// 02:30 on the 8th does not exist in New York
		"the night of the changed clock": {schedule: "30 2 * * *", now: "2026-03-08T20:00:00Z",
			change: func(cj *batchv1.CronJob) {
				cj.Spec.TimeZone = ptr.To("America/New_York")
				cj.Status.LastScheduleTime = &metav1.Time{Time: time.Date(2026, 3, 7, 7, 30, 0, 0, time.UTC)}
			}, again: 10*time.Hour + 30*time.Minute},
		"started already": {change: func(cj *batchv1.CronJob) {
			cj.Status.LastScheduleTime = &metav1.Time{Time: time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)}
		}, again: 29*time.Minute + 40*time.Second},
		"started, and the status was never written": {jobs: running("2026-03-05T10:00:00Z"), again: 29*time.Minute +
			40*time.Second},
		"beside another": {now: "2026-03-05T11:00:00Z", jobs: running("2026-03-05T10:00:00Z"),
			starts: "2026-03-05T11:00:00Z", again: time.Hour},
		"not beside another": {now: "2026-03-05T11:00:00Z", jobs: running("2026-03-05T10:00:00Z"),
			again: time.Hour, change: withPolicy(batchv1.ForbidConcurrent), events: "JobAlreadyActive"},
		"instead of another": {now: "2026-03-05T11:00:00Z", jobs: running("2026-03-05T10:00:00Z"),
			starts: "2026-03-05T11:00:00Z", stops: 1, again: time.Hour, change: withPolicy(batchv1.ReplaceConcurrent)},
		"one made by hand": {jobs: manualJobs, starts: "2026-03-05T10:00:00Z", again: 29*time.Minute +
			40*time.Second, events: "UnexpectedJob", change: withPolicy(batchv1.ForbidConcurrent)},
		"after another has ended": {now: "2026-03-05T11:00:00Z", jobs: completedJobs, starts: "2026-03-05T11:00:00Z",
			again: time.Hour, change: combine(withPolicy(batchv1.ForbidConcurrent), addActiveJob),
			events: "SawCompletedJob"},
		"after one that went away": {now: "2026-03-05T11:00:00Z", starts: "2026-03-05T11:00:00Z", again: time.Hour,
			change: combine(withPolicy(batchv1.ForbidConcurrent), addActiveJob), events: "MissingJob"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.schedule == "" {
				c.schedule = "0 * * * *"
			}
			if c.now == "" {
				c.now = "2026-03-05T10:30:20Z"
			}
			cj := cronJob(parseTime(t, "2026-03-05T09:06:00Z"), c.schedule)
			var jobs []*batchv1.Job
			if c.jobs != nil {
				jobs = c.jobs(t, cj)
			}
			if c.change != nil {
				c.change(cj)
			}
			removed := map[types.UID]bool{}
			for _, r := range cj.Status.Active {
				removed[r.UID] = !slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.UID == r.UID })
			}
			now := parseTime(t, c.now)
			d := Decide(cj, jobs, removed, now)
			switch {
			case c.starts == "" && !d.Start.IsZero():
				t.Errorf("starts a job for %s", d.Start)
			case c.starts != "" && d.Start.Format(time.RFC3339) != c.starts:
				t.Errorf("starts for %s, want %s", d.Start.Format(time.RFC3339), c.starts)
			}
			if len(d.Stop) != c.stops {
				t.Errorf("stops %v", d.Stop)
			}
			if c.again > 0 {
				c.again += timerSlack
			}
			if d.RequeueAfter != c.again {
				t.Errorf("again after %s, want %s", d.RequeueAfter, c.again)
			}
			var reasons []string
			for _, e := range d.Events {
				reasons = append(reasons, e.Reason)
			}
			if got := strings.Join(reasons, " "); got != c.events {
				t.Errorf("events %q, want %q", got, c.events)
			}
		})
	}
}

func withPolicy(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = p }
}

func combine(a, b func(*batchv1.CronJob)) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { a(cj); b(cj) }
}

// addActiveJob adds the job of 10:00 to the status.
func addActiveJob(cj *batchv1.CronJob) {
	scheduled := time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)
	name := jobName(cj, scheduled)
	cj.Status.Active = []corev1.ObjectReference{{Name: name, UID: types.UID(name)}}
	cj.Status.LastScheduleTime = &metav1.Time{Time: scheduled}
}

func completedJobs(t *testing.T, cj *batchv1.CronJob) []*batchv1.Job {
	return []*batchv1.Job{jobAt(cj, parseTime(t, "2026-03-05T10:00:00Z"), batchv1.JobComplete)}
}

func manualJobs(t *testing.T, cj *batchv1.CronJob) []*batchv1.Job {
	job := jobAt(cj, parseTime(t, "2026-03-05T10:00:00Z"), "")
	job.Name, job.Annotations = "by-hand", map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
	return []*batchv1.Job{job}
}

func TestStatusListsActiveJobsAndTheLastSuccess(t *testing.T) {
	cj := cronJob(parseTime(t, "2026-03-05T06:00:00Z"), "0 * * * *")
	addActiveJob(cj)
	jobs := []*batchv1.Job{
		jobAt(cj, parseTime(t, "2026-03-05T08:00:00Z"),
			batchv1.JobFailed), jobAt(cj, parseTime(t, "2026-03-05T09:00:00Z"), batchv1.JobComplete),
		jobAt(
			cj,
			parseTime(t, "2026-03-05T07:00:00Z"),
			batchv1.JobComplete,
		), jobAt(cj, parseTime(t, "2026-03-05T10:00:00Z"), ""), jobAt(cj, parseTime(t, "2026-03-05T11:00:00Z"), ""),
	}
	Decide(cj, jobs, nil, parseTime(t, "2026-03-05T11:10:00Z"))
	s := cj.Status
	if len(s.Active) != 2 || s.Active[1].Kind != "Job" || s.Active[1].APIVersion != "batch/v1" ||
		s.Active[1].Namespace != "n" {
		t.Errorf("active: %v", s.Active)
	}
	if want := parseTime(t, "2026-03-05T11:00:00Z"); !s.LastScheduleTime.Time.Equal(want) {
		t.Errorf("last scheduled %s, want %s", s.LastScheduleTime, want)
	}
	if want := parseTime(t, "2026-03-05T09:00:30Z"); s.LastSuccessfulTime == nil ||
		!s.LastSuccessfulTime.Time.Equal(want) {
		t.Errorf("last success %v, want %s", s.LastSuccessfulTime, want)
	}
}

func TestHistoryKeepsTheNewestJobs(t *testing.T) {
	for _, c := range []struct {
		succeeded, failed *int32
		want              string // hours of the jobs to delete
	}{
		{nil, nil, ""}, {ptr.To[int32](3), ptr.To[int32](1), "02"}, {ptr.To[int32](1), ptr.To[int32](2), "01 03"},
		{ptr.To[int32](0), ptr.To[int32](0), "01 03 05 02 04"},
	} {
		cj := cronJob(parseTime(t, "2026-03-05T00:00:00Z"), "0 * * * *")
		cj.Spec.SuccessfulJobsHistoryLimit, cj.Spec.FailedJobsHistoryLimit = c.succeeded, c.failed
		var jobs []*batchv1.Job
		for hour, end := range []batchv1.JobConditionType{"", batchv1.JobComplete, batchv1.JobFailed,
			batchv1.JobComplete, batchv1.JobFailed, batchv1.JobComplete} {
			jobs = append(jobs, jobAt(cj, time.Date(2026, 3, 5, hour, 0, 0, 0, time.UTC), end))
		}
		slices.Reverse(jobs)
		var got []string
		for _, job := range Decide(cj, jobs, nil, parseTime(t, "2026-03-05T05:30:00Z")).Expire {
			got = append(got, job.CreationTimestamp.UTC().Format("15"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("limits %v and %v: %v go, want %s", c.succeeded, c.failed, got, c.want)
		}
	}
}

func TestJobsAreNamedAfterTheirTimeAndOwned(t *testing.T) {
	cj := cronJob(parseTime(t, "2026-03-05T00:00:00Z"), "0 * * * *")
	cj.Spec.JobTemplate.Labels, cj.Spec.JobTemplate.Annotations = map[string]string{
		"a": "b",
	}, map[string]string{
		"c": "d",
	}
	cj.Spec.TimeZone = ptr.To("Asia/Tokyo")
	job := newJob(cj, parseTime(t, "2026-03-05T10:00:00Z"))
	if job.Name != "c-29545080" || job.Namespace != "n" || job.Labels["a"] != "b" || job.Annotations["c"] != "d" {
		t.Errorf("job: %+v", job.ObjectMeta)
	}
	if got := job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]; got != "2026-03-05T19:00:00+09:00" {
		t.Errorf("scheduled timestamp %s", got)
	}
	if !metav1.IsControlledBy(job, cj) || job.OwnerReferences[0].Kind != "CronJob" ||
		!*job.OwnerReferences[0].BlockOwnerDeletion {
		t.Errorf("owners: %v", job.OwnerReferences)
	}
}

func TestJobsWithoutATimeZoneAreStampedInUTC(t *testing.T) {
	cj := cronJob(parseTime(t, "2026-03-05T00:00:00Z"), "0 * * * *")
	cj.Spec.TimeZone = nil
	local := time.FixedZone("the machine's", -5*3600)
	job := newJob(cj, parseTime(t, "2026-03-05T10:00:00Z").In(local))
	if got := job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]; got != "2026-03-05T10:00:00Z" {
		t.Errorf("scheduled timestamp %s", got)
	}
}

func TestEventsHaveUpstreamsTexts(t *testing.T) {
	created, now := parseTime(t, "2026-03-05T06:00:00Z"), parseTime(t, "2026-03-05T10:00:00Z")
	for _, c := range []struct {
		schedule string
		change   func(*batchv1.CronJob)
		want     string
	}{
		{"59 23 31 2 *", nil, "Warning InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between two " +
			"schedules is less than 1 second"},
		{"61 * * * *", nil, `Warning UnparseableSchedule unparseable schedule: "61 * * * *" : end of range (61) above maximum (59): 61`},
		{"* * * * *", nil, "Warning TooManyMissedTimes too many missed start times. Set or decrease " +
			".spec.startingDeadlineSeconds or check clock skew"},
		{"0 * * * *", func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Moon/Sea") }, `Warning UnknownTimeZone invalid timeZone: "Moon/Sea": unknown time zone Moon/Sea`},
		{"0 7 * * *", func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = ptr.To[int64](60) },
			"Warning MissSchedule Missed scheduled time to start a job: Thu, 05 Mar 2026 07:00:00 +0000"},
	} {
		cj := cronJob(created, c.schedule)
		if c.change != nil {
			c.change(cj)
		}
		d := Decide(cj, nil, nil, now)
		if len(d.Events) != 1 || d.Events[0].Type+" "+d.Events[0].Reason+" "+d.Events[0].Message != c.want {
			t.Errorf("%s: %q, want %q", c.schedule, d.Events, c.want)
		}
	}
}
