package config

import (
	"fmt"
	"strings"
	"unicode"
)

// Plain returns a text as a terminal may be given it: what would move its cursor, colour it, change its title or turn
// the direction of writing is written out, as \x1b. Line ends and tabs stay. Texts that machines, servers and workloads
// say are anybody's.
func Plain(text string) string {
	return written(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// PlainLine is Plain for what is to stay on one line: a line that began in the middle of it could be taken for one of
// ours.
func PlainLine(text string) string { return written(text, func(r rune) bool { return r == '\t' }) }

// Indented is Plain with every line but the first indented, so that none can be taken for one of ours.
func Indented(text, by string) string {
	return strings.ReplaceAll(Plain(strings.TrimRight(text, "\n")), "\n", "\n"+by)
}

func written(text string, stays func(rune) bool) string {
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
