package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// passThrough are the commands whose arguments belong to another program, from the first non-flag argument on.
var passThrough = map[string]bool{"ssh": true, "daemon": true}

// toDoubleDash converts flags with one dash, as in Terraform, to flags with two dashes, which are also accepted. It
// does not change one-letter flags and the values of flags.
func toDoubleDash(root *cobra.Command, args []string) []string {
	out := make([]string, 0, len(args))
	c, value := root, false
	for i, a := range args {
		switch {
		case value:
			value = false
		case a == "--":
			return append(out, args[i:]...)
		case !strings.HasPrefix(a, "-") || a == "-":
			if passThrough[c.Name()] {
				return append(out, args[i:]...)
			}
			if below, _, err := c.Find([]string{a}); err == nil {
				c = below
			}
		default:
			name, _, given := strings.Cut(a, "=")
			if !strings.HasPrefix(a, "--") && len(name) > 2 {
				a, name = "-"+a, "-"+name
			}
			value = !given && needsValue(c, name)
		}
		out = append(out, a)
	}
	return out
}

// needsValue reports whether the word after a flag is its value.
func needsValue(c *cobra.Command, flag string) bool {
	var f *pflag.Flag
	if name, ok := strings.CutPrefix(flag, "--"); ok {
		f = c.Flags().Lookup(name)
	} else {
		f = c.Flags().ShorthandLookup(flag[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}
