package block

import (
	"fmt"
	"regexp"

	"github.com/hashicorp/hcl/v2"
)

// Suggest returns " Did you mean …?" when a known word is so close to the given one that it may be a slip of the
// keyboard, and an empty text otherwise.
func Suggest(given string, known []string) string {
	best, distance := "", 0
	for _, k := range known {
		if d := editDistance(given, k); isSlip(given, k) && (best == "" || d < distance) {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// isSlip reports whether one word may be another one mistyped: one letter differs in a short word, and a third of the
// letters at most in a long one.
func isSlip(given, known string) bool {
	length := max(len(given), len(known))
	return min(len(given), len(known)) > 1 && editDistance(given, known) <= max(1, length/3)
}

// unknownFunction is what the library of HCL says about a function that is not there, with the word that it suggests.
var unknownFunction = regexp.MustCompile(`^(There is no function named "([^"]*)"\.)(?: Did you mean "[^"]*"\?)?$`)

// SuggestFunctions replaces what the library of HCL suggests for functions that are not there: it is any function whose
// name differs in two letters, also of three.
func SuggestFunctions(diags hcl.Diagnostics, functions []string) hcl.Diagnostics {
	for _, d := range diags {
		if m := unknownFunction.FindStringSubmatch(d.Detail); m != nil {
			d.Detail = m[1] + Suggest(m[2], functions)
		}
	}
	return diags
}

// editDistance returns how many letters have to be added, removed, replaced or exchanged with their neighbours to turn
// one text into another.
func editDistance(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
