package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api"
)

// Decision holds the actions for a CronJob, besides its status.
type Decision struct {
	Start        time.Time                // scheduled time of the job to start; zero means none
	Stop         []corev1.ObjectReference // running jobs that the new one replaces
	Expire       []*batchv1.Job           // finished jobs beyond the history's limits
	Events       []Event
	RequeueAfter time.Duration // sync again after this time; zero means never
}

// Event is an event to record for a CronJob.
type Event struct{ Type, Reason, Message string }

func (d *Decision) addEvent(kind, reason, format string, args ...any) {
	d.Events = append(d.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// timerSlack is added to the time of the next sync, so that a timer that fires slightly early does not find nothing to
// do.
const timerSlack = 100 * time.Millisecond

// Decide updates the status of a CronJob from its jobs and returns the actions to take. removed holds the jobs of
// status.active that certainly no longer exist. A job that the cache does not show yet is not among them.
func Decide(cj *batchv1.CronJob, jobs []*batchv1.Job, removed map[types.UID]bool, now time.Time) Decision {
	var d Decision
	observeJobs(cj, jobs, removed, now, &d)
	d.Expire = expiredJobs(cj, jobs)
	if cj.DeletionTimestamp != nil {
		return d
	}
	zone, err := location(cj)
	if err != nil {
		d.addEvent(corev1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", *cj.Spec.TimeZone, err)
		return d
	}
	if cj.Spec.Suspend != nil && *cj.Spec.Suspend {
		return d
	}
	if strings.Contains(cj.Spec.Schedule, "TZ") {
		d.addEvent(corev1.EventTypeWarning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not "+
			"officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more "+
			"details", cj.Spec.Schedule)
	}
	schedule, err := parseSchedule(cj)
	if err != nil {
		d.addEvent(corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : "+
			"%s", cj.Spec.Schedule, err)
		return d
	}
	if schedule.Next(now).IsZero() { // for example 30 February
		d.addEvent(corev1.EventTypeWarning, "InvalidSchedule",
			"invalid schedule: %s : time difference between two schedules is less than 1 second", cj.Spec.Schedule)
		return d
	}
	now = now.In(zone)
	after := lastTime(cj).In(zone)
	var deadline time.Duration
	counted := after
	if seconds := cj.Spec.StartingDeadlineSeconds; seconds != nil {
		deadline = api.Seconds(*seconds)
		if limit := now.Add(-deadline); limit.After(after) {
			counted = limit
		}
	}
	due, next := surroundingTimes(schedule, after, now)
	d.RequeueAfter = next.Sub(now) + timerSlack
	if due.IsZero() {
		return d
	}
	if hasMissedTooMany(schedule, counted, now) {
		d.addEvent(corev1.EventTypeWarning, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if cj.Spec.StartingDeadlineSeconds != nil && due.Add(deadline).Before(now) {
		d.addEvent(corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s",
			due.UTC().Format(time.RFC1123Z))
		return d
	}
	if slices.ContainsFunc(cj.Status.Active,
		func(r corev1.ObjectReference) bool { return r.Name == jobName(cj, due) }) {
		return d // the job exists, and only lastScheduleTime is not written yet
	}
	if len(cj.Status.Active) > 0 {
		switch cj.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			d.addEvent(corev1.EventTypeNormal, "JobAlreadyActive",
				"Not starting job because prior execution is running and concurrency policy is Forbid")
			return d
		case batchv1.ReplaceConcurrent:
			d.Stop = slices.Clone(cj.Status.Active)
		}
	}
	d.Start = due
	return d
}

// untilNext returns how long it is until a CronJob's next time. It returns false if the schedule or the time zone is
// invalid.
func untilNext(cj *batchv1.CronJob, now time.Time) (time.Duration, bool) {
	zone, err := location(cj)
	if err != nil {
		return 0, false
	}
	schedule, err := parseSchedule(cj)
	if err != nil || schedule.Next(now).IsZero() {
		return 0, false
	}
	now = now.In(zone)
	_, next := surroundingTimes(schedule, lastTime(cj).In(zone), now)
	return next.Sub(now) + timerSlack, true
}

// lastTime returns the time after which a CronJob's scheduled times count.
func lastTime(cj *batchv1.CronJob) time.Time {
	if last := cj.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return cj.CreationTimestamp.Time
}

// observeJobs updates the status: the active jobs, the last scheduled time and the last successful time. A job with a
// scheduled time counts even if its creator ended before the status was written.
func observeJobs(cj *batchv1.CronJob, jobs []*batchv1.Job, removed map[types.UID]bool, now time.Time, d *Decision) {
	s := &cj.Status
	s.Active = slices.DeleteFunc(s.Active, func(r corev1.ObjectReference) bool {
		if removed[r.UID] {
			d.addEvent(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", r.Name)
		}
		return removed[r.UID]
	})
	for _, job := range jobs {
		at := slices.IndexFunc(s.Active, func(r corev1.ObjectReference) bool { return r.UID == job.UID })
		end, finished := finishedCondition(job)
		scheduled, ours := scheduledFor(cj, job, now)
		if ours && (s.LastScheduleTime == nil || scheduled.After(s.LastScheduleTime.Time)) {
			s.LastScheduleTime = &metav1.Time{Time: scheduled}
		}
		switch {
		case at >= 0 && finished:
			s.Active = slices.Delete(s.Active, at, at+1)
			d.addEvent(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, end)
		case at < 0 && !finished && ours && job.DeletionTimestamp == nil:
			s.Active = append(s.Active, reference(job))
		case at < 0 && !finished && !ours:
			d.addEvent(corev1.EventTypeWarning, "UnexpectedJob",
				"Saw a job that the controller did not create or forgot: %s", job.Name)
		}
		if done := job.Status.CompletionTime; end == batchv1.JobComplete && done != nil &&
			(s.LastSuccessfulTime == nil || done.After(s.LastSuccessfulTime.Time)) {
			s.LastSuccessfulTime = done.DeepCopy()
		}
	}
	if len(s.Active) == 0 {
		s.Active = nil
	}
}

// expiredJobs returns the finished jobs that exceed the history limits, the oldest first.
func expiredJobs(cj *batchv1.CronJob, jobs []*batchv1.Job) []*batchv1.Job {
	var out []*batchv1.Job
	for _, history := range []struct {
		end   batchv1.JobConditionType
		limit *int32
	}{{batchv1.JobComplete, cj.Spec.SuccessfulJobsHistoryLimit}, {batchv1.JobFailed, cj.Spec.FailedJobsHistoryLimit}} {
		var ended []*batchv1.Job
		for _, job := range jobs {
			if end, _ := finishedCondition(job); end == history.end && job.DeletionTimestamp == nil {
				ended = append(ended, job)
			}
		}
		if history.limit == nil || len(ended) <= int(*history.limit) {
			continue
		}
		slices.SortFunc(ended, func(a, b *batchv1.Job) int {
			return cmp.Or(startTime(a).Compare(startTime(b)), cmp.Compare(a.Name, b.Name))
		})
		out = append(out, ended[:len(ended)-int(*history.limit)]...)
	}
	return out
}

func startTime(job *batchv1.Job) time.Time {
	if job.Status.StartTime == nil {
		return job.CreationTimestamp.Time
	}
	return job.Status.StartTime.Time
}

func finishedCondition(job *batchv1.Job) (batchv1.JobConditionType, bool) {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type, true
		}
	}
	return "", false
}
