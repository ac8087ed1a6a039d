package api

import "time"

// maxSeconds is a century in seconds: longer than any object lives, and far below the limit of time.Duration.
const maxSeconds = 100 * 366 * 24 * 3600

// Seconds converts a number of seconds that a client chose to a duration, limited to 100 years in both directions. A
// plain multiplication overflows above 292 years, and a very long time would become negative.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, -maxSeconds), maxSeconds)) * time.Second
}
