package objectjson

import (
	"bytes"
	"encoding/json"
)

// Marshal encodes any value with encoding/json, without escaping <, > and &.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return unescape(text), err
}

// escapePrefix is the beginning of a Unicode escape below U+0100. escapeLength is the length of such an escape.
const escapePrefix, escapeLength = `\u00`, len(`\u003c`)

// unescape replaces the escapes of <, > and & in place. Disabling HTML escaping in encoding/json is no alternative: it
// would copy the output of types that encode themselves without compacting it.
func unescape(text []byte) []byte {
	at := bytes.Index(text, []byte(escapePrefix))
	if at < 0 {
		return text
	}
	to, from := at, at // the text before the first escape stays
	for {
		if c := markupCharacter(text[at:]); c != 0 && !endsInOddBackslash(text[:at]) {
			to += copy(text[to:], text[from:at])
			text[to] = c
			to++
			from = at + escapeLength
			at = from
		} else {
			at += len(escapePrefix)
		}
		next := bytes.Index(text[at:], []byte(escapePrefix))
		if next < 0 {
			return text[:to+copy(text[to:], text[from:])]
		}
		at += next
	}
}

// markupCharacter returns the character of an escape of <, > or &, and 0 for other text.
func markupCharacter(text []byte) byte {
	if len(text) >= escapeLength {
		switch string(text[len(escapePrefix):escapeLength]) {
		case "3c", "3C":
			return '<'
		case "3e", "3E":
			return '>'
		case "26":
			return '&'
		}
	}
	return 0
}

// endsInOddBackslash reports whether text ends in a backslash that quotes the next one, so that the following backslash
// begins no escape.
func endsInOddBackslash(text []byte) bool {
	before := len(text) - len(bytes.TrimRight(text, `\`))
	return before%2 == 1
}
