package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Hidden replaces a sensitive value.
const Hidden = "(sensitive)"

// shortest is the minimum length in bytes of secrets that are hidden anywhere in a text. A shorter one is hidden only
// where it is a whole value.
const shortest = 4

// Mask replaces every secret in a text, also in its JSON encoding.
func Mask(text string, secrets []string) string {
	for _, s := range forms(secrets) {
		text = strings.ReplaceAll(text, s, Hidden)
	}
	return text
}

// MaskJSON does the same as Mask for JSON and keeps it valid: a number becomes a string.
func MaskJSON(text string, secrets []string) string {
	for _, s := range secrets {
		if len(s) >= shortest && !truth(s) && json.Valid([]byte(s)) {
			number := regexp.MustCompile(`([:\[,]\s*)` + regexp.QuoteMeta(s) + `(\s*[,}\]])`)
			text = number.ReplaceAllString(text, `${1}"`+Hidden+`"${2}`)
		}
	}
	return Mask(text, secrets)
}

// HasSecret reports whether a text contains or equals a secret, or is cut off within one.
func HasSecret(text string, secrets []string) bool {
	whole := strings.Trim(text, `"`)
	if slices.Contains(secrets, whole) && whole != "" {
		return true
	}
	start, short := strings.CutSuffix(text, "…")
	for _, s := range forms(secrets) {
		if strings.Contains(text, s) {
			return true
		}
		for n := min(len(s), len(start)); short && n >= shortest; n-- {
			if strings.HasSuffix(start, s[:n]) {
				return true
			}
		}
	}
	return false
}

// truth reports whether a secret is true or false. These words are everywhere, so like a short secret they are hidden
// only where they are a whole value.
func truth(s string) bool { return s == "true" || s == "false" }

// forms returns the encodings of secrets, longest first, because one may be part of another.
func forms(secrets []string) []string {
	var list []string
	for _, s := range secrets {
		if len(s) < shortest || truth(s) {
			continue
		}
		list = append(list, s)
		for _, html := range []bool{false, true} {
			var out bytes.Buffer
			e := json.NewEncoder(&out)
			e.SetEscapeHTML(html)
			if e.Encode(s) == nil {
				text := strings.TrimSpace(out.String())
				list = append(list, text[1:len(text)-1])
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}
