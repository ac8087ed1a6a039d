package cronjob

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Told is an event to be.
type Told struct{ Type, Reason, Message string }

// Account brings what a status says of the jobs to what there is, and says which have to be told of. lost are those that the status calls
// active and that are not among the jobs: whoever calls has asked for them, and they are gone.
func Account(status *batchv1.CronJobStatus, jobs []*batchv1.Job, lost []types.UID) (told []Told) {
	active := map[types.UID]bool{}
	for _, ref := range status.Active {
		active[ref.UID] = true
	}
	for _, job := range jobs {
		condition, finished := ended(job)
		switch {
		case !active[job.UID] && !finished:
			told = append(told, Told{corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: " + job.Name})
		case active[job.UID] && finished:
			status.Active = slices.DeleteFunc(status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
			told = append(told, Told{corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %v", job.Name, condition)})
		}
		if finished && condition == batchv1.JobComplete && job.Status.CompletionTime != nil &&
			(status.LastSuccessfulTime == nil || status.LastSuccessfulTime.Before(job.Status.CompletionTime)) {
			status.LastSuccessfulTime = job.Status.CompletionTime.DeepCopy()
		}
	}
	status.Active = slices.DeleteFunc(status.Active, func(ref corev1.ObjectReference) bool {
		if !slices.Contains(lost, ref.UID) {
			return false
		}
		told = append(told, Told{corev1.EventTypeNormal, "MissingJob", "Active job went missing: " + ref.Name})
		return true
	})
	if len(status.Active) == 0 {
		status.Active = nil
	}
	return told
}

// unexpected reports whether a job runs that the status does not know of.
func unexpected(c *batchv1.CronJob, jobs []*batchv1.Job) bool {
	return slices.ContainsFunc(jobs, func(job *batchv1.Job) bool {
		_, finished := ended(job)
		return !finished && !slices.ContainsFunc(c.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
	})
}

// ended says how a job has ended, if it has.
func ended(job *batchv1.Job) (batchv1.JobConditionType, bool) {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type, true
		}
	}
	return "", false
}

// Outdated returns the jobs that have ended and that the history has no room for, the oldest first.
func Outdated(c *batchv1.CronJob, jobs []*batchv1.Job) (list []*batchv1.Job) {
	for _, h := range []struct {
		condition batchv1.JobConditionType
		limit     *int32
	}{{batchv1.JobComplete, c.Spec.SuccessfulJobsHistoryLimit}, {batchv1.JobFailed, c.Spec.FailedJobsHistoryLimit}} {
		if h.limit == nil {
			continue
		}
		var done []*batchv1.Job
		for _, job := range jobs {
			if how, is := ended(job); is && how == h.condition && job.DeletionTimestamp == nil {
				done = append(done, job)
			}
		}
		slices.SortFunc(done, func(a, b *batchv1.Job) int {
			return cmp.Or(started(a).Compare(started(b)), strings.Compare(a.Name, b.Name))
		})
		if extra := len(done) - int(*h.limit); extra > 0 {
			list = append(list, done[:extra]...)
		}
	}
	return list
}

func started(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}

// Schedule is when a cron job is due.
type Schedule struct {
	cron.Schedule
	zone *time.Location
}

// ErrZone and ErrSchedule are what may be wrong with one.
var (
	ErrZone     = errors.New("unknown time zone")
	ErrSchedule = errors.New("unparseable schedule")
)

// ScheduleOf reads a cron job's. A time zone in the schedule itself is of old ones, which the API no longer takes.
func ScheduleOf(c *batchv1.CronJob) (Schedule, error) {
	s := Schedule{zone: time.Local}
	text := c.Spec.Schedule
	if c.Spec.TimeZone != nil {
		zone, err := time.LoadLocation(*c.Spec.TimeZone)
		if err != nil {
			return s, fmt.Errorf("%w %q", ErrZone, *c.Spec.TimeZone)
		}
		s.zone = zone
		text = "CRON_TZ=" + *c.Spec.TimeZone + " " + text
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return s, fmt.Errorf("%w: %q : %w", ErrSchedule, c.Spec.Schedule, err)
	}
	s.Schedule = parsed
	return s, nil
}

// manyMissed is how many times that were missed are worth a warning: somebody's clock may be wrong.
const manyMissed = 100

// Due is the last time until now at which a job was due and none has been started since, the zero time when there is none. many says that more
// were missed than is to be expected.
func (s Schedule) Due(c *batchv1.CronJob, now time.Time) (due time.Time, many bool) {
	earliest := c.CreationTimestamp.Time
	if c.Status.LastScheduleTime != nil {
		earliest = c.Status.LastScheduleTime.Time
	}
	if d := c.Spec.StartingDeadlineSeconds; d != nil {
		if since := now.Add(-time.Duration(*d) * time.Second); since.After(earliest) {
			earliest = since
		}
	}
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok { // @every counts from the last one
		if n := now.Sub(earliest) / every.Delay; n > 0 {
			return earliest.Add(n * every.Delay).Truncate(time.Second), n > manyMissed
		}
		return due, false
	}
	missed := 0
	for next := s.Next(earliest); missed <= manyMissed && !next.IsZero() && !next.After(now); next = s.Next(next) {
		missed++
	}
	if missed == 0 {
		return due, false
	}
	// From the end: what was due every minute for years is not gone through.
	for _, back := range looks {
		from := now.Add(-back)
		if from.Before(earliest) {
			from = earliest
		}
		for next := s.Next(from); !next.IsZero() && !next.After(now); next = s.Next(next) {
			due = next
		}
		if !due.IsZero() {
			break
		}
	}
	return due, missed > manyMissed
}

// looks are how far back the last time is looked for. The longest that a schedule pauses is eight years, from one leap day to the next around a century.
var looks = []time.Duration{2 * time.Minute, 2 * time.Hour, 48 * time.Hour, 40 * 24 * time.Hour, 9 * 366 * 24 * time.Hour, 1<<63 - 1}

// Again is how long it is until the next time. Timers may be early by a little, times of jobs not.
func (s Schedule) Again(now time.Time) (time.Duration, bool) {
	next := s.Next(now)
	return next.Sub(now) + 100*time.Millisecond, !next.IsZero()
}

// newJob is the job for a time. Its name follows from that, so that there is never a second one.
func newJob(c *batchv1.CronJob, s Schedule, due time.Time) *batchv1.Job {
	template := c.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: fmt.Sprintf("%s-%d", c.Name, due.Unix()/60),
			Labels: template.Labels, Annotations: template.Annotations,
			CreationTimestamp: metav1.Time{Time: due},
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(c, kind)},
		},
		Spec: template.Spec,
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = due.In(s.zone).Format(time.RFC3339)
	return job
}
