package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// HiddenText replaces a sensitive value.
const HiddenText = "(sensitive)"

// minHiddenLength is the minimum length in bytes of secrets that are hidden anywhere in a text. A shorter one is hidden
// only where it is a whole value.
const minHiddenLength = 4

// Mask replaces every secret in a text, also in its JSON encoding.
func Mask(text string, secrets []string) string {
	for _, s := range encodedForms(secrets) {
		text = strings.ReplaceAll(text, s, HiddenText)
	}
	return text
}

// MaskJSON does the same as Mask for JSON and keeps it valid: a number becomes a string.
func MaskJSON(text string, secrets []string) string {
	for _, s := range secrets {
		if len(s) >= minHiddenLength && !isBoolWord(s) && json.Valid([]byte(s)) {
			number := regexp.MustCompile(`([:\[,]\s*)` + regexp.QuoteMeta(s) + `(\s*[,}\]])`)
			text = number.ReplaceAllString(text, `${1}"`+HiddenText+`"${2}`)
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
	for _, s := range encodedForms(secrets) {
		if strings.Contains(text, s) {
			return true
		}
		for n := min(len(s), len(start)); short && n >= minHiddenLength; n-- {
			if strings.HasSuffix(start, s[:n]) {
				return true
			}
		}
	}
	return false
}

// isBoolWord reports whether a secret is true or false. These words are everywhere, so like a short secret they are
// hidden only where they are a whole value.
func isBoolWord(s string) bool { return s == "true" || s == "false" }

// encodedForms returns the encodings of secrets, longest first, because one may be part of another.
func encodedForms(secrets []string) []string {
	var list []string
	for _, s := range secrets {
		if len(s) < minHiddenLength || isBoolWord(s) {
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
