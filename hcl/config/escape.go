package config

import (
	"fmt"
	"strings"
	"unicode"
)

// EscapeControls escapes control characters and bidirectional formatting as \x1b or \u202e, so that a text cannot
// control a terminal. Line breaks and tabs stay. It is for texts from machines, servers and workloads, which are not
// trusted.
func EscapeControls(text string) string {
	return escapeRunes(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// EscapeLine does the same as EscapeControls and also escapes line breaks, so that a text cannot fake a line of the
// program's own output.
func EscapeLine(text string) string { return escapeRunes(text, func(r rune) bool { return r == '\t' }) }

// EscapeIndented does the same as EscapeControls and indents all lines except the first, so that they cannot be
// mistaken for the program's own lines.
func EscapeIndented(text, by string) string {
	return strings.ReplaceAll(EscapeControls(strings.TrimRight(text, "\n")), "\n", "\n"+by)
}

func escapeRunes(text string, stays func(rune) bool) string {
	commands := func(r rune) bool {
		return !stays(r) && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp))
	}
	if strings.IndexFunc(text, commands) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !commands(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
