package cronjob

import (
	"errors"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// parseSchedule returns a CronJob's schedule in its time zone. The API refuses new objects with a zone inside the
// schedule, but existing ones keep theirs.
func parseSchedule(cj *batchv1.CronJob) (cron.Schedule, error) {
	text := cj.Spec.Schedule
	if cj.Spec.TimeZone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *cj.Spec.TimeZone + " " + text
	}
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		if !strings.Contains(text, " ") {
			return nil, errors.New("a time zone without a schedule")
		}
	}
	return cron.ParseStandard(text)
}

// location returns the time zone of a CronJob. It returns an error for a zone that this machine does not know.
func location(cj *batchv1.CronJob) (*time.Location, error) {
	if cj.Spec.TimeZone == nil {
		return time.Local, nil
	}
	return time.LoadLocation(*cj.Spec.TimeZone)
}

// surroundingTimes returns the last time of a schedule in (after, now], or the zero time, and the next time after now.
func surroundingTimes(schedule cron.Schedule, after, now time.Time) (due, next time.Time) {
	if due = latestTime(schedule, after, now); !due.IsZero() {
		after = due
	}
	return due, schedule.Next(after)
}

// latestTime returns the last time of a schedule in (after, now], or the zero time.
func latestTime(schedule cron.Schedule, after, now time.Time) time.Time {
	first := schedule.Next(after)
	if first.IsZero() || first.After(now) {
		return time.Time{}
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return first.Add(now.Sub(first) / every.Delay * every.Delay)
	}
	// Search for the latest start whose next time has come. Iterating is too slow, because after may be years ago with
	// a time each minute.
	low, high := after, now // Next(low) has come, Next(high) has not
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2)
		if next := schedule.Next(middle); next.IsZero() || next.After(now) {
			high = middle
		} else {
			low = middle
		}
	}
	return schedule.Next(low)
}

// maxMissedTimes is the number of missed times above which a warning is recorded.
const maxMissedTimes = 100

// hasMissedTooMany reports whether more than maxMissedTimes times of a schedule lie in (after, now].
func hasMissedTooMany(schedule cron.Schedule, after, now time.Time) bool {
	for range maxMissedTimes + 1 {
		after = schedule.Next(after)
		if after.IsZero() || after.After(now) {
			return false
		}
	}
	return true
}
