package why

import (
	"fmt"
	"io"
	"strings"
)

// lineWidth is the number of columns of a report on a screen.
const lineWidth = 100

// Print writes a report as text for a screen.
func Print(out io.Writer, r *Report) error {
	var b strings.Builder
	wrap(&b, "", "", r.Verdict)
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
		wrap(&b, lead, "    ", text)
		previous = s.Object
	}
	if len(r.Remedies) > 0 {
		b.WriteString("\nWhat to do:\n")
	}
	for _, m := range r.Remedies {
		wrap(&b, "  - ", "    ", m.Text)
		if m.Field != "" {
			wrap(&b, "    ", "      ", "field: "+m.Field)
		}
		if m.Command != "" { // not wrapped, to be copied
			fmt.Fprintf(&b, "      %s\n", m.Command)
		}
	}
	if len(r.Unseen) > 0 {
		b.WriteString("\nNot seen:\n")
	}
	for _, u := range r.Unseen {
		wrap(&b, "  - ", "    ", u)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// wrap writes words in lines of at most lineWidth columns. A longer word has a line of its own.
func wrap(b *strings.Builder, first, next, text string) {
	line, isEmpty := first, true
	for _, word := range strings.Fields(text) {
		if !isEmpty && len([]rune(line))+1+len([]rune(word)) > lineWidth {
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
