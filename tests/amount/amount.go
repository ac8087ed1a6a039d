// Package amount lets tests of amounts use smaller ones with the race detector, under which everything takes ten times
// as long. The suite "amounts" of tests/runner runs the same tests without the detector, with the whole amounts.
package amount

// Of returns whole, or small when the program is built with the race detector.
func Of(whole, small int) int {
	if underRace {
		return small
	}
	return whole
}
