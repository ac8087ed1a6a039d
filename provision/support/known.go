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

// meaningful is the minimum length in bytes of values that are hidden anywhere in a text. Shorter values are hidden
// only where they are not part of a longer word.
const meaningful = 6

// Known hides values that are known to be secret.
type Known struct {
	spread []*regexp.Regexp // values with white space, which YAML and logs write in different ways
	parts  []string         // values to hide anywhere, longest first
	whole  []string         // short values
}

// NewKnown returns a Known for a list of values. It ignores "true" and "false", which are everywhere; hiding one of
// them would reveal the other.
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
			// A short line of a longer value is a brace or a name. PEM headers are the same for every key.
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

// Hide replaces the values in a text.
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

// longest sorts values by length, so that no value is replaced before a longer one that contains it.
func longest(list []string) []string {
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}

// spellings returns the forms in which JSON, YAML and JSON within JSON encode a text.
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

// spread returns a pattern for words with any white space between them: indented, folded or escaped.
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

// hideWhole hides a value where it is not part of a longer word, number or path.
func hideWhole(text, value string) string {
	var out strings.Builder
	begin := 0 // start of the text that is not written yet
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

// opens reports whether a value may begin after this text.
func opens(before string) bool {
	n := len(before)
	if n >= 2 && before[n-2] == '\\' && strings.ContainsRune("nrt", rune(before[n-1])) ||
		strings.HasSuffix(before, "//") {
		return true
	}
	r, _ := utf8.DecodeLastRuneInString(before)
	return n == 0 || !inWord(r)
}

// closes reports whether a value may end before this text.
func closes(after string) bool {
	r, size := utf8.DecodeRuneInString(after)
	if r == '.' { // perhaps the end of a sentence
		next, n := utf8.DecodeRuneInString(after[size:])
		return n == 0 || unicode.IsSpace(next)
	}
	return size == 0 || !inWord(r)
}
