package config

import "time"

// System configures the machines' operating systems.
type System struct {
	Packages []string // packages of the distribution to install on all machines
	Upgrade  string   // UpgradeSecurity or UpgradeAll; empty means no upgrades
	Reboot   bool     // reboot when the operating system requests it
	Proxy    *Proxy   // for connections from machines to hosts outside the cluster; nil means none
	Window   *Window  // when upgrades and reboots are allowed; nil means at any time
}

// Values of Upgrade.
const (
	UpgradeSecurity = "security"
	UpgradeAll      = "all"
)

// HasMaintenance reports whether the configuration asks for upgrades or reboots.
func (s System) HasMaintenance() bool { return s.Upgrade != "" || s.Reboot }

// Window is a maintenance window on certain days of the week.
type Window struct {
	Days     []time.Weekday // days on which it opens
	From, To time.Duration  // since midnight; if To is not after From, the window ends on the next day
	Zone     *time.Location
}

// IsOpen reports whether a time is within the window.
func (w Window) IsOpen(t time.Time) bool {
	t = t.In(w.Zone)
	return w.isWithin(t, t) || w.isWithin(t, t.AddDate(0, 0, -1))
}

// isWithin reports whether t is within the window that opens on a day.
func (w Window) isWithin(t, day time.Time) bool {
	from, to, opens := w.hoursOn(day)
	return opens && !t.Before(from) && t.Before(to)
}

func (w Window) hoursOn(day time.Time) (from, to time.Time, opens bool) {
	for _, d := range w.Days {
		opens = opens || d == day.Weekday()
	}
	from, to = w.timeOn(day, w.From), w.timeOn(day, w.To)
	if w.To <= w.From {
		to = w.timeOn(day.AddDate(0, 0, 1), w.To)
	}
	return from, to, opens
}

// timeOn returns a wall-clock time of a day, independent of daylight saving changes.
func (w Window) timeOn(day time.Time, since time.Duration) time.Time {
	return time.Date(day.Year(), day.Month(), day.Day(), 0, int(since/time.Minute), 0, 0, w.Zone)
}

// NextOpening returns the next time at which the window opens.
func (w Window) NextOpening(t time.Time) time.Time {
	t = t.In(w.Zone)
	for i := range 9 { // a week, and the days around it
		if from, _, opens := w.hoursOn(t.AddDate(0, 0, i)); opens && from.After(t) {
			return from
		}
	}
	return time.Time{}
}
