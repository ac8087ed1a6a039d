// Package document formats documents that benchmarks and tests write.
package document

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns  = 120
	maxTableRow = 200
)

// Write formats a document and writes it to a file.
func Write(path, text string) error { return os.WriteFile(path, []byte(Format(text)), 0o644) }

// Format wraps the prose of a Markdown document. The last cell of a table row that is too long becomes a numbered note
// below the table.
func Format(text string) string {
	var out strings.Builder
	var table, paragraph []string
	flush := func() {
		writeTable(&out, table)
		writeParagraph(&out, paragraph)
		table, paragraph = nil, nil
	}
	isCode := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence, isCode, line == "", strings.HasPrefix(line, "#"):
			flush()
			out.WriteString(line + "\n")
			if isFence {
				isCode = !isCode
			}
		case strings.HasPrefix(line, "|"):
			if paragraph != nil {
				flush()
			}
			table = append(table, line)
		default:
			if table != nil || listItem.MatchString(line) {
				flush()
			}
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return out.String()
}

// writeParagraph writes a paragraph, or an item of a list. It wraps the paragraph again if a line is too long.
func writeParagraph(out *strings.Builder, lines []string) {
	for _, line := range lines {
		if utf8.RuneCountInString(line) > maxColumns {
			writeWrapped(out, strings.Join(lines, " "))
			return
		}
	}
	for _, line := range lines {
		out.WriteString(line + "\n")
	}
}

// writeTable writes the rows of a table, and the notes below it.
func writeTable(out *strings.Builder, rows []string) {
	var notes []string
	for _, row := range rows {
		if utf8.RuneCountInString(row) > maxTableRow {
			cells := strings.Split(strings.Trim(row, "|"), "|")
			for i := len(cells) - 1; i > 0; i-- {
				if note := strings.TrimSpace(cells[i]); note != "" {
					notes = append(notes, note)
					cells[i] = fmt.Sprintf(" note %d ", len(notes))
					break
				}
			}
			row = "|" + strings.Join(cells, "|") + "|"
		}
		out.WriteString(row + "\n")
	}
	if len(notes) > 0 {
		out.WriteString("\n")
	}
	for i, note := range notes {
		writeWrapped(out, fmt.Sprintf("%d. %s", i+1, note))
	}
}

var listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.)\s+`)

// writeWrapped writes the text of a paragraph, or of an item of a list, in lines of at most maxColumns characters.
func writeWrapped(out *strings.Builder, text string) {
	indent := strings.Repeat(" ", len(listItem.FindString(text)))
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
			out.WriteString(lead)
			column = len(lead)
		case column+1+n > maxColumns:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += n
	}
	out.WriteString("\n")
}
