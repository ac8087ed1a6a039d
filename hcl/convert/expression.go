package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// plainKey matches keys of objects that need no quotes. Words that begin another expression are quoted.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

var quotedWords = []string{"for", "null", "true", "false"}

// writer writes expressions. The layout is that of `clusterctl fmt` once hclwrite.Format has aligned it.
type writer struct{ text strings.Builder }

// value writes a value. inList means that it is an element of a list, where a heredoc cannot stand.
func (w *writer) value(v any, inList bool) {
	switch v := v.(type) {
	case nil:
		w.text.WriteString("null")
	case bool:
		w.text.WriteString(strconv.FormatBool(v))
	case int64:
		w.text.WriteString(strconv.FormatInt(v, 10))
	case float64:
		w.text.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
	case string:
		if !inList && fitsHeredoc(v) {
			w.heredoc(v)
			return
		}
		w.text.WriteString(quote(v))
	case []any:
		w.list(v)
	case map[string]any:
		w.object(v)
	}
}

func (w *writer) list(list []any) {
	if len(list) == 0 {
		w.text.WriteString("[]")
		return
	}
	if isShort(list) {
		w.text.WriteString("[")
		for i, e := range list {
			if i > 0 {
				w.text.WriteString(", ")
			}
			w.value(e, true)
		}
		w.text.WriteString("]")
		return
	}
	w.text.WriteString("[\n")
	for _, e := range list {
		w.value(e, true)
		w.text.WriteString(",\n")
	}
	w.text.WriteString("]")
}

// isShort reports whether a list fits on one line.
func isShort(list []any) bool {
	width := 0
	for _, e := range list {
		switch e := e.(type) {
		case string:
			width += len(e) + 4
		case map[string]any, []any:
			return false
		default:
			width += 8
		}
	}
	return width <= 80
}

func (w *writer) object(fields map[string]any) {
	if len(fields) == 0 {
		w.text.WriteString("{}")
		return
	}
	w.text.WriteString("{\n")
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if plainKey.MatchString(key) && !slices.Contains(quotedWords, key) {
			w.text.WriteString(key)
		} else {
			w.text.WriteString(quote(key))
		}
		w.text.WriteString(" = ")
		w.value(fields[key], false)
		w.text.WriteString("\n")
	}
	w.text.WriteString("}")
}

// heredoc writes a text of several lines.
func (w *writer) heredoc(text string) {
	marker := "EOT"
	for i := 2; strings.Contains(text, marker); i++ {
		marker = fmt.Sprintf("EOT%d", i)
	}
	escaped := strings.NewReplacer("${", "$${", "%{", "%%{").Replace(text)
	fmt.Fprintf(&w.text, "<<%s\n%s%s", marker, escaped, marker)
}

// fitsHeredoc reports whether a text can be written as a heredoc without loss.
func fitsHeredoc(text string) bool {
	if strings.Count(text, "\n") < 2 || !strings.HasSuffix(text, "\n") || markerPair.MatchString(text) ||
		strings.Contains(text, "EOT9") {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) < 0
}

// isMarker reports whether a character begins a template sequence if a brace follows it.
func isMarker(r rune) bool { return r == '$' || r == '%' }

// markerPair matches texts in which an escaped template sequence could be read as another.
var markerPair = regexp.MustCompile(`[$%][$%]`)

// quote returns a text as a quoted string.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	runes := []rune(text)
	for i, r := range runes {
		next := rune(0)
		if i+1 < len(runes) {
			next = runes[i+1]
		}
		switch {
		case isMarker(r) && next == '{' && (i == 0 || !isMarker(runes[i-1])):
			b.WriteRune(r)
			b.WriteRune(r)
		case isMarker(r) && (next == '{' || isMarker(next)):
			fmt.Fprintf(&b, `\u%04x`, r) // several of them before a brace would be read as an escape
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x10000 && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// inexpressible returns the reason why a value cannot be written so that reading it gives the same value, or "".
func inexpressible(v any, depth int) string {
	if depth > maxDepth {
		return fmt.Sprintf("it has more than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case string:
		if !norm.NFC.IsNormalString(v) {
			return fmt.Sprintf("the text %.40q is not in Unicode's normalization form C", v)
		}
	case []any:
		for _, e := range v {
			if reason := inexpressible(e, depth+1); reason != "" {
				return reason
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if reason := inexpressible(key, depth+1); reason != "" {
				return reason
			}
			if reason := inexpressible(v[key], depth+1); reason != "" {
				return reason
			}
		}
	}
	return ""
}
