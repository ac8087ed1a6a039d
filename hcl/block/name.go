package block

import (
	"regexp"
	"strings"
)

// address is the one of the instance that is being decoded, of a block with this address in its module.
func (x *Context) address(inModule string) string {
	return x.Module + inModule + x.instance.Suffix()
}

var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// name is what something is called that says no name of its own: the block's label, after the names of the modules that
// it is in, and with the key or index of for_each or count.
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

// named makes a name of a text.
func named(text string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
}
