package lsp

import (
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// pathOf returns the path of a file URI.
func pathOf(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	return filepath.Clean(u.Path), true
}

func uriOf(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// offsetOf returns the byte offset of a position. A position past the end of its line means the end of the line.
func offsetOf(text string, p position) int {
	at := 0
	for range max(p.Line, 0) {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	for units := 0; units < p.Character && at < len(text) && text[at] != '\n'; {
		r, size := utf8.DecodeRuneInString(text[at:])
		units += max(utf16.RuneLen(r), 1)
		at += size
	}
	return at
}

// positionOf returns the position of a byte offset.
func positionOf(text string, at int) position {
	at = min(max(at, 0), len(text))
	before := text[:at]
	start := strings.LastIndexByte(before, '\n') + 1
	units := 0
	for _, r := range before[start:] {
		units += max(utf16.RuneLen(r), 1)
	}
	return position{strings.Count(before, "\n"), units}
}

func rangeOf(text string, from, to int) textRange {
	return textRange{positionOf(text, from), positionOf(text, to)}
}
