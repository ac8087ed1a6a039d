package load

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

// Report holds diagnostics for programs, in the format of terraform validate -json.
type Report struct {
	FormatVersion string       `json:"format_version"` // always 1.0
	Valid         bool         `json:"valid"`
	ErrorCount    int          `json:"error_count"`
	WarningCount  int          `json:"warning_count"`
	Diagnostics   []Diagnostic `json:"diagnostics"`
}

// Diagnostic is an error or a warning.
type Diagnostic struct {
	Severity string   `json:"severity"` // error or warning
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail"`
	Range    *Range   `json:"range,omitempty"`
	Snippet  *Snippet `json:"snippet,omitempty"`
}

// Range is a part of a file.
type Range struct {
	Filename string   `json:"filename"`
	Start    Position `json:"start"`
	End      Position `json:"end"`
}

// Position is a position in a file. Lines and columns start at 1, bytes at 0.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Snippet holds the source lines of a diagnostic. The offsets are bytes in Code.
type Snippet struct {
	Context              *string `json:"context"`
	Code                 string  `json:"code"`
	StartLine            int     `json:"start_line"`
	HighlightStartOffset int     `json:"highlight_start_offset"`
	HighlightEndOffset   int     `json:"highlight_end_offset"`
	Values               []Value `json:"values"`
}

// Value describes the value of a reference in the lines.
type Value struct {
	Traversal string `json:"traversal"`
	Statement string `json:"statement"`
}

// Report returns diagnostics for programs, without sensitive values.
func (c *Configuration) Report(diags hcl.Diagnostics) Report {
	r := Report{FormatVersion: "1.0", Valid: !diags.HasErrors(), Diagnostics: []Diagnostic{}}
	for _, d := range diags {
		out := Diagnostic{
			Severity: "error",
			Summary:  config.Mask(d.Summary, c.secrets()),
			Detail:   clipText(config.Mask(d.Detail, c.secrets())),
		}
		if d.Severity == hcl.DiagWarning {
			out.Severity = "warning"
			r.WarningCount++
		} else {
			r.ErrorCount++
		}
		if d.Subject != nil {
			out.Range = &Range{d.Subject.Filename, positionOf(d.Subject.Start), positionOf(d.Subject.End)}
			out.Snippet = c.snippet(d)
		}
		r.Diagnostics = append(r.Diagnostics, out)
	}
	return r
}

func positionOf(p hcl.Pos) Position { return Position{p.Line, p.Column, p.Byte} }

// snippet returns the source lines of a diagnostic, or nil if the file is not available or the lines are too long.
func (c *Configuration) snippet(d *hcl.Diagnostic) *Snippet {
	f := c.Files[d.Subject.Filename]
	if f == nil || d.Subject.Start.Byte > len(f.Bytes) || d.Subject.End.Byte > len(f.Bytes) ||
		d.Subject.End.Byte < d.Subject.Start.Byte {
		return nil
	}
	start, end := d.Subject.Start.Byte, d.Subject.End.Byte
	from := strings.LastIndexByte(string(f.Bytes[:start]), '\n') + 1
	to := len(f.Bytes)
	if i := strings.IndexByte(string(f.Bytes[end:]), '\n'); i >= 0 {
		to = end + i
	}
	if to-from > maxSnippet {
		return nil
	}
	s := &Snippet{
		Code:                 string(f.Bytes[from:to]),
		StartLine:            d.Subject.Start.Line,
		HighlightStartOffset: start - from,
		HighlightEndOffset:   end - from,
		Values:               []Value{},
	}
	if nav, ok := f.Nav.(interface{ ContextString(offset int) string }); ok {
		if text := nav.ContextString(start); text != "" {
			s.Context = &text
		}
	}
	if d.Expression == nil || d.EvalContext == nil || c.hasSensitive {
		return s
	}
	seen := map[string]bool{}
	for _, t := range d.Expression.Variables() {
		v, diags := t.TraverseAbs(d.EvalContext)
		name := traversalText(t)
		if diags.HasErrors() || seen[name] {
			continue
		}
		seen[name] = true
		s.Values = append(s.Values, Value{name, describeValue(v)})
	}
	return s
}

func traversalText(t hcl.Traversal) string {
	return strings.TrimSpace(string(hclwrite.TokensForTraversal(t).Bytes()))
}

// describeValue describes a value in a few words.
func describeValue(v cty.Value) string {
	ty := v.Type()
	switch {
	case v.ContainsMarked():
		return "is sensitive"
	case !v.IsKnown():
		return "is known only when a plan is made"
	case v.IsNull():
		return "is null"
	case ty == cty.String:
		text := v.AsString()
		if utf8.RuneCountInString(text) > 200 {
			text = string([]rune(text)[:200]) + "…"
		}
		return fmt.Sprintf("is %q", text)
	case ty == cty.Number:
		return "is " + v.AsBigFloat().Text('g', 20)
	case ty == cty.Bool:
		return fmt.Sprintf("is %v", v.True())
	case ty.IsCollectionType() || ty.IsTupleType():
		return fmt.Sprintf("is %s with %d elements", ty.FriendlyName(), v.LengthInt())
	case ty.IsObjectType():
		return fmt.Sprintf("is object with %d attributes", len(ty.AttributeTypes()))
	}
	return "is " + ty.FriendlyName()
}
