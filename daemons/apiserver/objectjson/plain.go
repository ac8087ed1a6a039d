package objectjson

import (
	"bytes"
	"encoding/json"
)

// Marshal encodes any value by encoding/json, and leaves <, > and & what they are.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return unescape(text), err
}

// escape is how what has no shorter one begins, and short is its length.
const escape, short = `\u00`, len(`\u003c`)

// unescape writes <, > and & as themselves, in place: encoding/json cannot be told to without leaving everything in
// what encodes itself as it came.
func unescape(text []byte) []byte {
	at := bytes.Index(text, []byte(escape))
	if at < 0 {
		return text
	}
	to, from := at, at // what is before is where it belongs
	for {
		if c := markup(text[at:]); c != 0 && !quoted(text[:at]) {
			to += copy(text[to:], text[from:at])
			text[to] = c
			to++
			from = at + short
			at = from
		} else {
			at += len(escape)
		}
		next := bytes.Index(text[at:], []byte(escape))
		if next < 0 {
			return text[:to+copy(text[to:], text[from:])]
		}
		at += next
	}
}

// markup is the character that an escape stands for, if it is one of those.
func markup(text []byte) byte {
	if len(text) >= short {
		switch string(text[len(escape):short]) {
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

// quoted says whether the backslash that follows is one that a backslash quotes.
func quoted(text []byte) bool {
	before := len(text) - len(bytes.TrimRight(text, `\`))
	return before%2 == 1
}
