package block

import (
	"slices"
	"strings"
	"testing"
)

func TestTheReferenceShowsTheLabelsOfBlocks(t *testing.T) {
	text := Reference()
	var walk func(path string, fields []Field)
	walk = func(path string, fields []Field) {
		for _, f := range fields {
			if !f.IsBlock || strings.HasPrefix(f.Name, "init_") {
				continue
			}
			inner := path + " → " + f.Name
			wanted, other := "**"+inner+"**", "**"+inner+` "NAME"**`
			if f.Labels > 0 {
				wanted, other, inner = other, wanted, inner+` "NAME"`
			}
			if !strings.Contains(text, wanted) || strings.Contains(text, other) {
				t.Errorf("the reference does not have %s, or has %s", wanted, other)
			}
			walk(inner, f.Nested())
		}
	}
	for _, b := range slices.Concat(Types, AddressTypes) {
		fields, _ := Fields(b.Name, nil)
		// The reference describes precondition and postcondition once, not for each block.
		fields = slices.DeleteFunc(fields, func(f Field) bool {
			return f.Name == "precondition" || f.Name == "postcondition"
		})
		walk(b.Name, fields)
	}
}
