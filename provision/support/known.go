package support

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// meaningful is the length from which a text is told from others wherever it stands. A
// shorter one is hidden only where it is a whole value.
const meaningful = 6

// Known are values that are known to be secret.
type Known struct {
	spread []*regexp.Regexp // values with spaces and line ends, which YAML and logs write in their own way
	parts  []string         // hidden wherever they stand, the longest first
	whole  []string         // short ones
}

// NewKnown prepares to hide values. "true" and "false" are everywhere, and what hides one tells the other: they stay.
func NewKnown(values []string) *Known {
	k := &Known{}
	for _, value := range values {
		if value == "true" || value == "false" {
			continue
		}
		if fields := strings.Fields(value); len(fields) > 1 {
			k.spread = append(k.spread, spread(fields))
		}
		k.add(strings.TrimSpace(value))
		lines := strings.Split(value, "\n")
		for _, line := range lines {
			line = strings.TrimSpace(line)
			// A short line of many is a brace or a name, and armour is the same for every key.
			if len(lines) > 1 && len(line) >= meaningful && !strings.HasPrefix(line, "-----") {
				k.add(line)
			}
		}
	}
	slices.SortStableFunc(k.spread, func(a, b *regexp.Regexp) int { return len(b.String()) - len(a.String()) })
	k.parts, k.whole = longest(k.parts), longest(k.whole)
	return k
}

func (k *Known) add(value string) {
	switch {
	case value == "":
	case len(value) < meaningful:
		k.whole = append(k.whole, value)
	default:
		k.parts = append(k.parts, spellings(value)...)
		k.parts = append(k.parts, base64.StdEncoding.EncodeToString([]byte(value)), url.QueryEscape(value))
	}
}

// Hide takes the values out of a text.
func (k *Known) Hide(text string) string {
	for _, s := range k.spread {
		text = s.ReplaceAllString(text, hidden)
	}
	for _, s := range k.parts {
		text = strings.ReplaceAll(text, s, hidden)
	}
	for _, s := range k.whole {
		text = hideWhole(text, s)
	}
	return text
}

// longest sorts so that none is looked for before another that it is part of.
func longest(list []string) []string {
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}

// spellings are how JSON, YAML and JSON inside of JSON write a text.
func spellings(value string) []string {
	list := []string{value, strings.ReplaceAll(value, "'", "''")}
	for _, html := range []bool{false, true} {
		once := escape(value, html)
		list = append(list, once, escape(once, html))
	}
	return longest(list)
}

func escape(value string, html bool) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil {
		return value
	}
	text := strings.TrimSpace(out.String())
	return text[1 : len(text)-1]
}

// spread matches words however the space between them is written: indented, folded or escaped.
func spread(words []string) *regexp.Regexp {
	var text strings.Builder
	for i, word := range words {
		if i > 0 {
			text.WriteString(`(?:\s|\\+[nrt\n ])+`)
		}
		text.WriteString("(?:")
		for j, s := range spellings(word) {
			if j > 0 {
				text.WriteString("|")
			}
			text.WriteString(regexp.QuoteMeta(s))
		}
		text.WriteString(")")
	}
	return regexp.MustCompile(text.String())
}

// hideWhole hides a value that is not part of a longer word, number or path.
func hideWhole(text, value string) string {
	var out strings.Builder
	begin := 0 // of what is not written yet
	for at := 0; ; {
		i := strings.Index(text[at:], value)
		if i < 0 {
			break
		}
		i += at
		end := i + len(value)
		if !opens(text[:i]) || !closes(text[end:]) {
			_, size := utf8.DecodeRuneInString(text[i:])
			at = i + size
			continue
		}
		out.WriteString(text[begin:i])
		out.WriteString(hidden)
		begin, at = end, end
	}
	out.WriteString(text[begin:])
	return out.String()
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./+", r)
}

// opens reports whether a value may begin after a text.
func opens(before string) bool {
	n := len(before)
	if n >= 2 && before[n-2] == '\\' && strings.ContainsRune("nrt", rune(before[n-1])) ||
		strings.HasSuffix(before, "//") {
		return true
	}
	r, _ := utf8.DecodeLastRuneInString(before)
	return n == 0 || !inWord(r)
}

// closes reports whether a value may end before a text.
func closes(after string) bool {
	r, size := utf8.DecodeRuneInString(after)
	if r == '.' { // of a sentence
		next, n := utf8.DecodeRuneInString(after[size:])
		return n == 0 || unicode.IsSpace(next)
	}
	return size == 0 || !inWord(r)
}
