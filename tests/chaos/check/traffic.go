package check

import (
	"fmt"
	"time"
)

// Failure is a request to the workload that was not answered as it should be.
type Failure struct {
	Client string    `json:"client"` // the machine that it came from
	At     time.Time `json:"at"`     // when it was sent
	Took   float64   `json:"took"`   // seconds
	Error  string    `json:"error"`
}

// Window is a time in which requests may fail, and why: a machine that runs some of the
// workload, or from which the request comes, is itself gone.
type Window struct {
	From, To time.Time
	Machine  string // its clients' requests alone; empty means everybody's
	Why      string
}

// Traffic returns the failures that no window excuses.
func Traffic(failures []Failure, windows []Window) []string {
	var findings []string
	for _, f := range failures {
		excused := false
		for _, w := range windows {
			end := f.At.Add(time.Duration(f.Took * float64(time.Second)))
			if (w.Machine == "" || w.Machine == f.Client) && !end.Before(w.From) && !f.At.After(w.To) {
				excused = true
			}
		}
		if !excused {
			findings = append(findings, fmt.Sprintf("a request from %s at %s failed after %.2f s: %s", f.Client, f.At.UTC().Format("15:04:05.000"), f.Took, f.Error))
		}
	}
	return findings
}

// Silence says what is wrong with clients that made fewer requests than they should have:
// a checker that did not look is not one that found nothing.
func Silence(client string, made int, span, every time.Duration) []string {
	if want := int(span/every) / 4; made < want {
		return []string{fmt.Sprintf("the client on %s made %d requests in %s, where one in %s was meant", client, made, span.Round(time.Second), every)}
	}
	return nil
}
