package check

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Failure is a request to the workload that was not answered correctly.
type Failure struct {
	Client string    `json:"client"` // the machine that sent the request
	At     time.Time `json:"at"`     // when the request was sent
	Took   float64   `json:"took"`   // seconds
	Error  string    `json:"error"`
}

// Window is a time in which requests may fail, and the reason: a machine with some of the workload's pods, or with the
// client, has a fault itself.
type Window struct {
	From, To time.Time
	Machine  string // only requests from this machine; empty: all requests
	Reason   string
}

// mergeInterval is the longest time between failures of one client that are reported as one.
const mergeInterval = 2 * time.Second

// Traffic returns the failures that no window excuses. Failures of a client that follow each other closely are reported
// as one.
func Traffic(failures []Failure, windows []Window) []string {
	byClient := map[string][]Failure{}
	for _, f := range failures {
		excused := false
		for _, w := range windows {
			end := f.At.Add(time.Duration(f.Took * float64(time.Second)))
			if (w.Machine == "" || w.Machine == f.Client) && !end.Before(w.From) && !f.At.After(w.To) {
				excused = true
			}
		}
		if !excused {
			byClient[f.Client] = append(byClient[f.Client], f)
		}
	}
	var findings []string
	for _, client := range slices.Sorted(maps.Keys(byClient)) {
		list := byClient[client]
		slices.SortFunc(list, func(a, b Failure) int { return a.At.Compare(b.At) })
		for from := 0; from < len(list); {
			to := from + 1
			for to < len(list) && list[to].At.Sub(list[to-1].At) < mergeInterval {
				to++
			}
			first, last := list[from], list[to-1]
			text := fmt.Sprintf("a request from %s at %s failed after %.2f s: %s", client, formatTime(first.At),
				first.Took, first.Error)
			if to > from+1 {
				text = fmt.Sprintf("%d requests from %s from %s to %s failed, the first after %.2f s: %s", to-from,
					client, formatTime(first.At), formatTime(last.At), first.Took, first.Error)
			}
			findings = append(findings, text)
			from = to
		}
	}
	return findings
}

func formatTime(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// MissedRequests reports a client that made far fewer requests than it should have. If a checker did not send requests,
// it proves nothing that it found no failures.
func MissedRequests(client string, made int, span, every time.Duration) []string {
	if want := int(span/every) / 4; made < want {
		return []string{
			fmt.Sprintf("the client on %s made %d requests in %s, where one in %s was meant", client, made,
				span.Round(time.Second), every),
		}
	}
	return nil
}
