package block

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// explain adds, to errors about names that a body does not have, what to write instead: where a block of that name belongs, or
// which names the body has. Errors that already suggest a name stay as they are.
func explain(diags hcl.Diagnostics, s *hcl.BodySchema) hcl.Diagnostics {
	var out hcl.Diagnostics
	for _, d := range diags {
		if _, name, quoted := strings.Cut(d.Detail, `"`); quoted && strings.HasSuffix(d.Detail, "not expected here.") {
			name, _, _ = strings.Cut(name, `"`)
			longer := *d
			longer.Detail += " " + insteadOf(name, s)
			d = &longer
		}
		out = append(out, d)
	}
	return out
}

func insteadOf(name string, s *hcl.BodySchema) string {
	for _, top := range Schema().Blocks {
		if top.Type == name {
			return fmt.Sprintf("A %s block stands at the top of a file, outside of other blocks.", name)
		}
	}
	var attributes, blocks []string
	for _, a := range s.Attributes {
		attributes = append(attributes, a.Name)
	}
	for _, b := range s.Blocks {
		blocks = append(blocks, b.Type)
	}
	text := "This block takes"
	if len(attributes) > 0 {
		text += " the arguments " + strings.Join(attributes, ", ")
	}
	if len(attributes) > 0 && len(blocks) > 0 {
		text += ", and"
	}
	if len(blocks) > 0 {
		text += " the blocks " + strings.Join(blocks, ", ")
	}
	return text + "."
}
