package objectjson

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// text is a JSON text and the position of the next token. Its methods skip white space before the token.
type text struct {
	data  []byte
	at    int
	depth int
	known *words
}

// words caches strings that were decoded recently. API objects repeat many strings, and cached ones share memory.
type words [256]string

// longestWord is the maximum length, in bytes, of strings in the cache.
const longestWord = 32

var lately = sync.Pool{New: func() any { return new(words) }}

func (w *words) of(b []byte) string {
	if len(b) == 0 || len(b) > longestWord {
		return string(b)
	}
	hash := uint32(len(b))
	for _, c := range b {
		hash = (hash ^ uint32(c)) * 16777619
	}
	known := &w[(hash>>8)%uint32(len(w))]
	if *known != string(b) {
		*known = string(b)
	}
	return *known
}

// deepest is how deep objects and lists may be nested. encoding/json supports more, at the cost of a larger stack.
const deepest = 500

// space skips white space.
func (t *text) space() {
	for t.at < len(t.data) {
		switch t.data[t.at] {
		case ' ', '\n', '\t', '\r':
			t.at++
		default:
			return
		}
	}
}

func (t *text) ended() bool {
	t.space()
	return t.at == len(t.data)
}

// is skips a character, and reports whether it is the next one.
func (t *text) is(c byte) bool {
	t.space()
	if t.at < len(t.data) && t.data[t.at] == c {
		t.at++
		return true
	}
	return false
}

// enter skips the opening character of an object or a list.
func (t *text) enter(open byte) bool {
	t.depth++
	return t.depth <= deepest && t.is(open)
}

// leave skips the closing character of an object or a list, and reports whether it is the next one.
func (t *text) leave(end byte) bool {
	if t.is(end) {
		t.depth--
		return true
	}
	return false
}

// word skips a literal, and reports whether it is the next token.
func (t *text) word(w string) bool {
	t.space()
	if len(t.data)-t.at >= len(w) && string(t.data[t.at:t.at+len(w)]) == w {
		t.at += len(w)
		return true
	}
	return false
}

func (t *text) null() bool { return t.word("null") }

// quoted skips a string, and returns the bytes between the quotation marks. literal reports whether they have no
// escapes and are valid UTF-8.
func (t *text) quoted() (inner []byte, literal, ok bool) {
	if !t.is('"') {
		return nil, false, false
	}
	from, literal, ascii := t.at, true, true
	for t.at < len(t.data) {
		switch c := t.data[t.at]; {
		case plain[c]:
			t.at++
		case c == '"':
			inner = t.data[from:t.at]
			t.at++
			return inner, literal && (ascii || utf8.Valid(inner)), true
		case c == '\\':
			literal = false
			if !t.escape() {
				return nil, false, false
			}
		case c < ' ':
			return nil, false, false
		default:
			ascii = ascii && c < utf8.RuneSelf
			t.at++
		}
	}
	return nil, false, false
}

// escape skips an escaped character.
func (t *text) escape() bool {
	rest := t.data[t.at+1:]
	if len(rest) == 0 {
		return false
	}
	if rest[0] != 'u' {
		t.at += 2
		return strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0
	}
	if len(rest) < 5 {
		return false
	}
	for _, c := range rest[1:5] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	t.at += 6
	return true
}

// name returns a member's name, which is valid as long as the text is. A name with escapes is left to encoding/json.
func (t *text) name() ([]byte, bool) {
	inner, literal, ok := t.quoted()
	return inner, ok && literal
}

// string decodes a string.
func (t *text) string() (s string, ok bool) {
	t.space()
	from := t.at
	inner, literal, ok := t.quoted()
	if !ok || literal {
		return t.known.of(inner), ok
	}
	return s, json.Unmarshal(t.data[from:t.at], &s) == nil
}

// digits skips one or more digits.
func (t *text) digits() bool {
	from := t.at
	for t.at < len(t.data) && t.data[t.at] >= '0' && t.data[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

// number skips a number.
func (t *text) number() bool {
	if t.is('-') && t.at == len(t.data) {
		return false
	}
	if t.at < len(t.data) && t.data[t.at] == '0' {
		t.at++
	} else if !t.digits() {
		return false
	}
	if t.at < len(t.data) && t.data[t.at] == '.' {
		t.at++
		if !t.digits() {
			return false
		}
	}
	if t.at < len(t.data) && (t.data[t.at] == 'e' || t.data[t.at] == 'E') {
		t.at++
		if t.at < len(t.data) && (t.data[t.at] == '-' || t.data[t.at] == '+') {
			t.at++
		}
		return t.digits()
	}
	return true
}

// integer decodes an integer of that many bits. Numbers with a fraction or an exponent are left to encoding/json.
func (t *text) integer(bits int) (int64, bool) {
	t.space()
	from := t.at
	negative := t.is('-')
	if t.at-from > 1 { // there was white space after the sign
		return 0, false
	}
	first := t.at
	var n uint64
	for ; t.at < len(t.data) && t.data[t.at] >= '0' && t.data[t.at] <= '9'; t.at++ {
		n = 10*n + uint64(t.data[t.at]-'0')
	}
	digits := t.at - first
	if digits == 0 || digits > 18 || digits > 1 && t.data[first] == '0' {
		return 0, false
	}
	if t.at < len(t.data) && (t.data[t.at] == '.' || t.data[t.at] == 'e' || t.data[t.at] == 'E') {
		return 0, false
	}
	v := int64(n)
	if negative {
		v = -v
	}
	return v, bits == 64 || v == int64(int32(v))
}

// value skips any value, and returns its text, which is valid JSON.
func (t *text) value() ([]byte, bool) {
	t.space()
	from := t.at
	ok := t.skip()
	return t.data[from:t.at], ok
}

func (t *text) skip() bool {
	if t.at == len(t.data) {
		return false
	}
	switch t.data[t.at] {
	case '"':
		_, _, ok := t.quoted()
		return ok
	case 't':
		return t.word("true")
	case 'f':
		return t.word("false")
	case 'n':
		return t.word("null")
	case '[':
		return t.members('[', ']')
	case '{':
		return t.members('{', '}')
	}
	return t.number()
}

// members skips an object or a list.
func (t *text) members(open, end byte) bool {
	if !t.enter(open) {
		return false
	}
	if t.leave(end) {
		return true
	}
	for {
		if open == '{' {
			if _, _, ok := t.quoted(); !ok || !t.is(':') {
				return false
			}
		}
		t.space()
		if !t.skip() {
			return false
		}
		if t.leave(end) {
			return true
		}
		if !t.is(',') {
			return false
		}
	}
}

// valid reports whether a text is one JSON value.
func valid(data []byte) bool {
	t := text{data: data}
	_, ok := t.value()
	return ok && t.ended() || !ok && json.Valid(data) // json.Valid also accepts values that are nested deeper
}

// like reports whether a member has the name, ignoring case. encoding/json accepts such names.
func like(places []place, name []byte) bool {
	return slices.ContainsFunc(places, func(p place) bool { return strings.EqualFold(p.name, string(name)) })
}
