package block

import (
	"regexp"
	"strings"
)

// fullAddress returns the full address of the instance being decoded. inModule is the block's address within its
// module.
func (x *Context) fullAddress(inModule string) string {
	return x.Module + inModule + x.instance.Suffix()
}

var invalidNameChars = regexp.MustCompile(`[^a-z0-9-]+`)

// defaultName returns the default name of a block: its label, after the names of the enclosing modules, and before the
// key or index of for_each or count.
func (x *Context) defaultName(label string) string {
	parts := append(append([]string{}, x.ModuleNames...), label)
	if x.instance.kind != notRepeated {
		parts = append(parts, x.instance.Key)
	}
	if len(parts) == 1 && !invalidNameChars.MatchString(label) {
		return label
	}
	return toName(strings.Join(parts, "-"))
}

// toName converts a text to a valid name.
func toName(text string) string {
	return strings.Trim(invalidNameChars.ReplaceAllString(strings.ToLower(text), "-"), "-")
}
