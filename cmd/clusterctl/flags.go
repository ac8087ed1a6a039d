package main

import "strings"

// passOn are verbs whose arguments are another program's.
var passOn = map[string]bool{"ssh": true, "daemon": true}

// long turns flags written with one dash, as Terraform's are, into those with two,
// which are taken as well. One letter stays what it is.
func long(args []string) []string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" || len(out) > 0 && passOn[out[0]] {
			return append(out, args[i:]...)
		}
		name, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && len(name) > 2 {
			a = "-" + a
		}
		out = append(out, a)
	}
	return out
}
