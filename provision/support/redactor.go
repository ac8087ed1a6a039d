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

// minHiddenLength is the minimum length in bytes of values that are hidden anywhere in a text. Shorter values are
// hidden only where they are not part of a longer word.
const minHiddenLength = 6

// Redactor hides values that are known to be secret.
type Redactor struct {
	spreadPatterns []*regexp.Regexp // values with white space, which YAML and logs write in different ways
	fragments      []string         // values to hide anywhere, longest first
	shortValues    []string         // short values
}

// NewRedactor returns a Redactor for a list of values. It ignores "true" and "false", which are everywhere; hiding one
// of them would reveal the other.
func NewRedactor(values []string) *Redactor {
	k := &Redactor{}
	for _, value := range values {
		if value == "true" || value == "false" {
			continue
		}
		if fields := strings.Fields(value); len(fields) > 1 {
			k.spreadPatterns = append(k.spreadPatterns, spreadPattern(fields))
		}
		k.add(strings.TrimSpace(value))
		lines := strings.Split(value, "\n")
		for _, line := range lines {
			line = strings.TrimSpace(line)
			// A short line of a longer value is a brace or a name. PEM headers are the same for every key.
			if len(lines) > 1 && len(line) >= minHiddenLength && !strings.HasPrefix(line, "-----") {
				k.add(line)
			}
		}
	}
	slices.SortStableFunc(k.spreadPatterns, func(a, b *regexp.Regexp) int { return len(b.String()) - len(a.String()) })
	k.fragments, k.shortValues = sortByLength(k.fragments), sortByLength(k.shortValues)
	return k
}

func (k *Redactor) add(value string) {
	switch {
	case value == "":
	case len(value) < minHiddenLength:
		k.shortValues = append(k.shortValues, value)
	default:
		k.fragments = append(k.fragments, spellings(value)...)
		k.fragments = append(k.fragments, base64.StdEncoding.EncodeToString([]byte(value)), url.QueryEscape(value))
	}
}

// Hide replaces the values in a text.
func (k *Redactor) Hide(text string) string {
	for _, s := range k.spreadPatterns {
		text = s.ReplaceAllString(text, hiddenText)
	}
	for _, s := range k.fragments {
		text = strings.ReplaceAll(text, s, hiddenText)
	}
	for _, s := range k.shortValues {
		text = hideWholeWords(text, s)
	}
	return text
}

// sortByLength sorts values by length, so that no value is replaced before a longer one that contains it.
func sortByLength(list []string) []string {
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
	return sortByLength(list)
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

// spreadPattern returns a pattern for words with any white space between them: indented, folded or escaped.
func spreadPattern(words []string) *regexp.Regexp {
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

// hideWholeWords hides a value where it is not part of a longer word, number or path.
func hideWholeWords(text, value string) string {
	var out strings.Builder
	begin := 0 // start of the text that is not written yet
	for at := 0; ; {
		i := strings.Index(text[at:], value)
		if i < 0 {
			break
		}
		i += at
		end := i + len(value)
		if !canStartAfter(text[:i]) || !canEndBefore(text[end:]) {
			_, size := utf8.DecodeRuneInString(text[i:])
			at = i + size
			continue
		}
		out.WriteString(text[begin:i])
		out.WriteString(hiddenText)
		begin, at = end, end
	}
	out.WriteString(text[begin:])
	return out.String()
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./+", r)
}

// canStartAfter reports whether a value may begin after this text.
func canStartAfter(before string) bool {
	n := len(before)
	if n >= 2 && before[n-2] == '\\' && strings.ContainsRune("nrt", rune(before[n-1])) ||
		strings.HasSuffix(before, "//") {
		return true
	}
	r, _ := utf8.DecodeLastRuneInString(before)
	return n == 0 || !isWordRune(r)
}

// canEndBefore reports whether a value may end before this text.
func canEndBefore(after string) bool {
	r, size := utf8.DecodeRuneInString(after)
	if r == '.' { // perhaps the end of a sentence
		next, n := utf8.DecodeRuneInString(after[size:])
		return n == 0 || unicode.IsSpace(next)
	}
	return size == 0 || !isWordRune(r)
}
