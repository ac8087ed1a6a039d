package apiserver_test

// amount returns how much of something a test of amounts uses. With the race detector, under which everything takes ten
// times as long, it is the smaller number; suite "amounts" of tests/runner runs the same tests without the detector.
func amount(whole, small int) int {
	if underRace {
		return small
	}
	return whole
}
