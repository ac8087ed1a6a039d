package config

import "time"

// System is what becomes of the machines' own system.
type System struct {
	Packages []string // of the distribution, installed everywhere
	Upgrade  string   // UpgradeSecurity, UpgradeAll; empty means that nothing is upgraded
	Reboot   bool     // when the system asks for one
	Proxy    *Proxy   // for connections from machines to hosts outside the cluster; nil means none
	Window   *Window  // when upgrades and reboots may be; nil: whenever apply is run
}

// What is upgraded of the distribution's packages.
const (
	UpgradeSecurity = "security"
	UpgradeAll      = "all"
)

// Kept reports whether anything is done to the system that wants a window.
func (s System) Kept() bool { return s.Upgrade != "" || s.Reboot }

// Window is a time of some days.
type Window struct {
	Days     []time.Weekday // on which it opens
	From, To time.Duration  // since midnight; one that ends before it begins ends on the next day
	Zone     *time.Location
}

// Open reports whether a time is within the window.
func (w Window) Open(t time.Time) bool {
	t = t.In(w.Zone)
	return w.within(t, t) || w.within(t, t.AddDate(0, 0, -1))
}

// within reports whether t is within the window that opens on a day.
func (w Window) within(t, day time.Time) bool {
	from, to, opens := w.on(day)
	return opens && !t.Before(from) && t.Before(to)
}

func (w Window) on(day time.Time) (from, to time.Time, opens bool) {
	for _, d := range w.Days {
		opens = opens || d == day.Weekday()
	}
	from, to = w.at(day, w.From), w.at(day, w.To)
	if w.To <= w.From {
		to = w.at(day.AddDate(0, 0, 1), w.To)
	}
	return from, to, opens
}

// at is a time of day by the clock on the wall, whatever hours the day has.
func (w Window) at(day time.Time, since time.Duration) time.Time {
	return time.Date(day.Year(), day.Month(), day.Day(), 0, int(since/time.Minute), 0, 0, w.Zone)
}

// Opens is when the window opens next.
func (w Window) Opens(t time.Time) time.Time {
	t = t.In(w.Zone)
	for i := range 9 { // a week, and the days around it
		if from, _, opens := w.on(t.AddDate(0, 0, i)); opens && from.After(t) {
			return from
		}
	}
	return time.Time{}
}
