package block

import (
	"fmt"
	"regexp"

	"github.com/hashicorp/hcl/v2"
)

// Suggest returns " Did you mean …?" with the known word that the given word most likely misspells. It returns "" if no
// known word is close enough.
func Suggest(given string, names []string) string {
	best, distance := "", 0
	for _, k := range names {
		if d := editDistance(given, k); isSlip(given, k) && (best == "" || d < distance) {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// isSlip reports whether given may be a typing error of name: at most a third of the letters differ. One letter may
// always differ.
func isSlip(given, name string) bool {
	length := max(len(given), len(name))
	return min(len(given), len(name)) > 1 && editDistance(given, name) <= max(1, length/3)
}

// unknownFunction matches the error of the HCL library about a function that does not exist, with its suggestion.
var unknownFunction = regexp.MustCompile(`^(There is no function named "([^"]*)"\.)(?: Did you mean "[^"]*"\?)?$`)

// SuggestFunctions replaces the suggestions of the HCL library for functions that do not exist. The library suggests
// any name that differs in at most two letters, even if the name has only three.
func SuggestFunctions(diags hcl.Diagnostics, functions []string) hcl.Diagnostics {
	for _, d := range diags {
		if m := unknownFunction.FindStringSubmatch(d.Detail); m != nil {
			d.Detail = m[1] + Suggest(m[2], functions)
		}
	}
	return diags
}

// editDistance returns the number of bytes to insert, delete, replace or swap with their neighbors to turn one text
// into the other.
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
