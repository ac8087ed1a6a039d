// Package amount lets tests use smaller amounts with the race detector, which makes everything about ten times slower.
// The suite "amounts" of tests/tools/runner runs the same tests without the detector, with the whole amounts.
package amount

// Scaled returns whole, or small when the program is built with the race detector.
func Scaled(whole, small int) int {
	if underRace {
		return small
	}
	return whole
}
