package why

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Print writes a report as text. Its lines have at most width columns; 0 means that they are not wrapped, as for a
// program that reads them.
func Print(out io.Writer, r *Report, width int) error {
	if width == 0 {
		width = math.MaxInt
	}
	var b strings.Builder
	wrap(&b, width, "", "", r.Verdict)
	if len(r.Chain) > 0 {
		b.WriteString("\nWhy:\n")
	}
	previous := Ref{}
	for i, s := range r.Chain {
		lead := "  "
		if i > 0 {
			lead = "  → "
		}
		text := s.Object.String() + ": " + s.Text
		if s.Object == previous {
			text = s.Text
		}
		if s.Evidence != "" {
			text += " [" + s.Evidence + "]"
		}
		wrap(&b, width, lead, "    ", text)
		previous = s.Object
	}
	if len(r.Remedies) > 0 {
		b.WriteString("\nWhat to do:\n")
	}
	for _, m := range r.Remedies {
		wrap(&b, width, "  - ", "    ", m.Text)
		if m.Field != "" {
			wrap(&b, width, "    ", "      ", "field: "+m.Field)
		}
		if m.Command != "" { // not wrapped, to be copied
			fmt.Fprintf(&b, "      %s\n", m.Command)
		}
	}
	if len(r.Unseen) > 0 {
		b.WriteString("\nNot seen:\n")
	}
	for _, u := range r.Unseen {
		wrap(&b, width, "  - ", "    ", u)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// wrap writes words in lines of at most width columns. A longer word has a line of its own.
func wrap(b *strings.Builder, width int, first, next, text string) {
	line, isEmpty := first, true
	for _, word := range strings.Fields(text) {
		if !isEmpty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, isEmpty = next, true
		}
		if !isEmpty {
			line += " "
		}
		line, isEmpty = line+word, false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
