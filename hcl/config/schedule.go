package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is an interval, or a cron expression with five fields in UTC.
type Schedule struct {
	Every  time.Duration
	Cron   string
	Jitter time.Duration // maximum random delay, so that not all machines act at once
}

// fields are the fields of cron.
var fields = []struct {
	name        string
	first, last int
	names       []string
}{
	{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// cronShorthands are cron's shorthands.
var cronShorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
}

// cronTimes are the allowed values of cron's fields, nil for all.
type cronTimes [5][]int

func parseCron(cron string) (t cronTimes, err error) {
	if full, ok := cronShorthands[strings.TrimSpace(cron)]; ok {
		cron = full
	}
	parts := strings.Fields(cron)
	if len(parts) != len(fields) {
		return t, fmt.Errorf(
			"it has %d fields, and five are wanted: minute, hour, day of the month, month, day of the week", len(parts))
	}
	for i, part := range parts {
		if t[i], err = parseValues(i, part); err != nil {
			return t, fmt.Errorf("its %s %q: %w", fields[i].name, part, err)
		}
	}
	if t[3] == nil || t[2] == nil || t[4] != nil {
		return t, nil
	}
	for _, month := range t[3] {
		if t[2][0] <= time.Date(2024, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day() { // in a leap year
			return t, nil
		}
	}
	return t, fmt.Errorf("there is no day %d in these months", t[2][0])
}

// parseValues parses lists of numbers, names, ranges and steps. It returns nil for all values.
func parseValues(field int, text string) (list []int, err error) {
	f := fields[field]
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return nil, fmt.Errorf("%q is not a step", stepText)
			}
		}
		from, to := f.first, f.last
		if span != "*" {
			low, high, ranged := strings.Cut(span, "-")
			if from, err = parseValue(field, low); err != nil {
				return nil, err
			}
			switch {
			case ranged:
				if to, err = parseValue(field, high); err != nil {
					return nil, err
				}
			case !stepped:
				to = from
			}
			if to < from {
				return nil, fmt.Errorf("%d comes before %d", to, from)
			}
		} else if step == 1 {
			return nil, nil
		}
		for n := from; n <= to; n += step {
			if field == 4 && n == 7 { // 7 is Sunday, as is 0
				list = append(list, 0)
			} else {
				list = append(list, n)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func parseValue(field int, text string) (int, error) {
	f := fields[field]
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return i + f.first, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.first || n > f.last {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, f.first, f.last)
	}
	return n, nil
}

// Check returns an error if the schedule's cron expression is invalid.
func (s Schedule) Check() error {
	if s.Cron == "" {
		return nil
	}
	_, err := parseCron(s.Cron)
	return err
}

// Calendar converts the cron expression to systemd calendar events. If both kinds of days are restricted, a match of
// either is enough, as in cron.
func (s Schedule) Calendar() []string {
	t, err := parseCron(s.Cron)
	if err != nil {
		return nil
	}
	numbers := func(list []int) string {
		if list == nil {
			return "*"
		}
		var texts []string
		for _, n := range list {
			texts = append(texts, fmt.Sprintf("%02d", n))
		}
		return strings.Join(texts, ",")
	}
	var week []string
	for _, n := range t[4] {
		name := fields[4].names[n]
		week = append(week, strings.ToUpper(name[:1])+name[1:])
	}
	at := func(week []string, days []int) string {
		text := fmt.Sprintf("*-%s-%s %s:%s:00 UTC", numbers(t[3]), numbers(days), numbers(t[1]), numbers(t[0]))
		if len(week) > 0 {
			text = strings.Join(week, ",") + " " + text
		}
		return text
	}
	if t[2] != nil && t[4] != nil {
		return []string{at(nil, t[2]), at(week, nil)}
	}
	return []string{at(week, t[2])}
}

// Next returns the next due time after a time, without jitter, or the zero time if there is none.
func (s Schedule) Next(after time.Time) time.Time {
	if s.Cron == "" {
		return after.Add(s.Every)
	}
	t, err := parseCron(s.Cron)
	if err != nil {
		return time.Time{}
	}
	in := func(field, n int) bool { return t[field] == nil || slices.Contains(t[field], n) }
	at := after.UTC().Truncate(time.Minute).Add(time.Minute)
	for end := at.AddDate(9, 0, 0); at.Before(end); { // a leap day occurs within eight years
		month, week := in(2, at.Day()), in(4, int(at.Weekday()))
		day := month && week
		if t[2] != nil && t[4] != nil {
			day = month || week
		}
		switch {
		case !in(3, int(at.Month())):
			at = time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		case !day:
			at = time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, time.UTC)
		case !in(1, at.Hour()):
			at = at.Truncate(time.Hour).Add(time.Hour)
		case !in(0, at.Minute()):
			at = at.Add(time.Minute)
		default:
			return at
		}
	}
	return time.Time{}
}

// IsOverdue reports whether two due times have passed since last.
func (s Schedule) IsOverdue(last, now time.Time) bool {
	due := s.Next(s.Next(last))
	return !due.IsZero() && now.After(due.Add(s.Jitter+time.Minute))
}
