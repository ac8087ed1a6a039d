package api

import "time"

// mostSeconds is a century: longer than any object lives, and far below what a Duration can represent.
const mostSeconds = 100 * 366 * 24 * 3600

// Seconds returns a number of seconds that a client chose as a duration, limited to a century in both directions. A
// plain multiplication overflows above 292 years, so that a very long time becomes one in the past.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, -mostSeconds), mostSeconds)) * time.Second
}
