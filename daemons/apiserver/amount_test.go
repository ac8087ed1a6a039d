//go:build !race

package apiserver_test

// underRace reports whether the tests are built with the race detector.
const underRace = false
