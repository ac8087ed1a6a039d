package block

import (
	"regexp"
	"strings"
)

// address returns the full address of the instance being decoded. inModule is the block's address within its module.
func (x *Context) address(inModule string) string {
	return x.Module + inModule + x.instance.Suffix()
}

var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// name returns the default name of a block: its label, after the names of the enclosing modules, and before the key or
// index of for_each or count.
func (x *Context) name(label string) string {
	parts := append(append([]string{}, x.ModuleNames...), label)
	if x.instance.kind != once {
		parts = append(parts, x.instance.Key)
	}
	if len(parts) == 1 && !notInNames.MatchString(label) {
		return label
	}
	return named(strings.Join(parts, "-"))
}

// named converts a text to a valid name.
func named(text string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
}
