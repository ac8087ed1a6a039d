package block

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// ExplainErrors wraps a body. Its errors about unexpected arguments and blocks say what to write instead.
func ExplainErrors(body hcl.Body) hcl.Body { return explainedBody{body} }

type explainedBody struct{ hcl.Body }

func (b explainedBody) Content(s *hcl.BodySchema) (*hcl.BodyContent, hcl.Diagnostics) {
	content, diags := b.Body.Content(s)
	return content, explain(diags, s)
}

// TopLevelContent returns the top-level blocks of a file. Its errors about unexpected blocks say what to write instead.
func TopLevelContent(body hcl.Body) (*hcl.BodyContent, hcl.Diagnostics) {
	s := Schema()
	content, diags := body.Content(s)
	for i, d := range diags {
		name, plain, ok := parseUnexpected(d)
		if !ok {
			continue
		}
		longer := *d
		longer.Detail = plain + suggestTopInstead(name, s)
		diags[i] = &longer
	}
	return content, diags
}

// Errors of the HCL library: an unexpected argument or block, and a missing argument.
var (
	unexpectedName = regexp.MustCompile(`^((?:An argument named|Blocks of type|No argument or block type is named) ` +
		`"([^"]*)"(?: (?:is|are) not expected here)?\.)(?: Did you mean "[^"]*"\?)?$`)
	requiredArgument = regexp.MustCompile(`^The argument "([^"]*)" is required`)
)

// parseUnexpected returns the name of the unexpected argument or block that a diagnostic is about, and the text without
// the suggestion. ok is false for any other diagnostic.
func parseUnexpected(d *hcl.Diagnostic) (name, plain string, ok bool) {
	m := unexpectedName.FindStringSubmatch(d.Detail)
	if m == nil {
		return "", "", false
	}
	return m[2], m[1], true
}

// explain adds to errors about unexpected names what to write instead: the correct spelling, where a block of that name
// belongs, or which names the body can have. It drops errors about a missing argument whose name was mistyped, and
// sorts the errors as ordered does.
func explain(diags hcl.Diagnostics, s *hcl.BodySchema) hcl.Diagnostics {
	var wrong, rest hcl.Diagnostics
	var mistyped []string
	for _, d := range diags {
		name, plain, ok := parseUnexpected(d)
		if !ok {
			rest = append(rest, d)
			continue
		}
		longer := *d
		if hint := Suggest(name, namesOf(s)); hint != "" {
			longer.Detail = plain + hint
			mistyped = append(mistyped, strings.Split(hint, `"`)[1])
		} else {
			longer.Detail = plain + " " + suggestInstead(name, s)
		}
		wrong = append(wrong, &longer)
	}
	for _, d := range rest {
		if m := requiredArgument.FindStringSubmatch(d.Detail); m == nil || !slices.Contains(mistyped, m[1]) {
			wrong = append(wrong, d)
		}
	}
	return sortDiagnostics(wrong)
}

// sortDiagnostics sorts errors by position, and errors about missing arguments last, because the HCL library returns
// them in map order. It drops the error that a value is unknown where another error says why the expression failed.
func sortDiagnostics(diags hcl.Diagnostics) hcl.Diagnostics {
	diags = slices.DeleteFunc(slices.Clone(diags), func(d *hcl.Diagnostic) bool {
		return d.Summary == "Unsuitable value type" && strings.HasSuffix(d.Detail, "value must be known") &&
			slices.ContainsFunc(diags, func(other *hcl.Diagnostic) bool {
				return other != d && d.Subject != nil && other.Subject != nil && other.Subject.Overlaps(*d.Subject)
			})
	})
	place := func(d *hcl.Diagnostic) (missing, start int) {
		if requiredArgument.MatchString(d.Detail) {
			missing = 1
		}
		if d.Subject != nil {
			start = d.Subject.Start.Byte
		}
		return missing, start
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		missing, start := place(a)
		otherMissing, otherStart := place(b)
		return cmp.Or(cmp.Compare(missing, otherMissing), cmp.Compare(start, otherStart))
	})
	return diags
}

func namesOf(s *hcl.BodySchema) (names []string) {
	for _, a := range s.Attributes {
		names = append(names, a.Name)
	}
	for _, b := range s.Blocks {
		names = append(names, b.Type)
	}
	return names
}

func suggestInstead(name string, s *hcl.BodySchema) string {
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

// terraformBlocks are Terraform's top-level blocks that this language does not have, each with its replacement.
var terraformBlocks = map[string]string{
	"terraform": "clusterctl has no settings of its own in the configuration: the cluster block's version says which " +
		"release it is for, the state is kept in the folder .clusterctl beside the configuration, and there are no " +
		"providers. Leave the block out.",
	"provider": "clusterctl has no providers: machine blocks say how machines are reached, and objects go to the " +
		"cluster that the configuration declares. Leave the block out.",
	"resource": "clusterctl has no resources of providers: write a machine, workload, object or manifests block.",
	"ephemeral": "clusterctl keeps no values of blocks in its state. Write a variable with sensitive = true, or a " +
		"data block.",
	"action": "clusterctl has no actions of providers.",
	"list":   "clusterctl has no queries of providers.",
}

// suggestTopInstead returns what to write instead of an unexpected block at the top level of a file.
func suggestTopInstead(name string, s *hcl.BodySchema) string {
	if reason, ok := terraformBlocks[name]; ok {
		return " " + reason
	}
	if hint := Suggest(name, namesOf(s)); hint != "" {
		return hint
	}
	return " The blocks at the top of a file are " + joinWords(namesOf(s)) + "."
}

func joinWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
