//go:build !race

package amount

const underRace = false
