package objectjson

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// text is JSON that is read from its start to its end. Its methods step over white space before what they are asked
// for.
type text struct {
	data  []byte
	at    int
	depth int
	known *words
}

// words are strings that were read lately. Objects of the API are full of the same ones: those take no room twice.
type words [256]string

// longestWord is how long a string may be that is looked for among those.
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

// deepest is how deep objects and lists may lie within each other; encoding/json takes deeper ones, at the price of a
// larger stack.
const deepest = 500

// space steps over white space.
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

// is steps over a character, if it is the next one.
func (t *text) is(c byte) bool {
	t.space()
	if t.at < len(t.data) && t.data[t.at] == c {
		t.at++
		return true
	}
	return false
}

// enter steps into an object or a list.
func (t *text) enter(open byte) bool {
	t.depth++
	return t.depth <= deepest && t.is(open)
}

// leave steps out of an object or a list, if it ends here.
func (t *text) leave(end byte) bool {
	if t.is(end) {
		t.depth--
		return true
	}
	return false
}

// word steps over a literal.
func (t *text) word(w string) bool {
	t.space()
	if len(t.data)-t.at >= len(w) && string(t.data[t.at:t.at+len(w)]) == w {
		t.at += len(w)
		return true
	}
	return false
}

func (t *text) null() bool { return t.word("null") }

// quoted steps over a string, and returns what is between the quotation marks and whether it is what it says: nothing
// in it is escaped.
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

// escape steps over an escaped character.
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

// name reads a member's name, which is good as long as the text is. One that is escaped is left to encoding/json.
func (t *text) name() ([]byte, bool) {
	inner, literal, ok := t.quoted()
	return inner, ok && literal
}

// string reads a string.
func (t *text) string() (s string, ok bool) {
	t.space()
	from := t.at
	inner, literal, ok := t.quoted()
	if !ok || literal {
		return t.known.of(inner), ok
	}
	return s, json.Unmarshal(t.data[from:t.at], &s) == nil
}

// digits steps over at least one digit.
func (t *text) digits() bool {
	from := t.at
	for t.at < len(t.data) && t.data[t.at] >= '0' && t.data[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

// number steps over a number.
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

// integer reads a whole number of so many bits. One with a fraction or an exponent is left to encoding/json.
func (t *text) integer(bits int) (int64, bool) {
	t.space()
	from := t.at
	negative := t.is('-')
	if t.at-from > 1 { // white space was between
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

// value steps over any value, and returns its text, which is well formed.
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

// members steps over an object or a list.
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

// valid says whether a text is one JSON value.
func valid(data []byte) bool {
	t := text{data: data}
	_, ok := t.value()
	return ok && t.ended() || !ok && json.Valid(data) // nested deeper than here is looked
}

// like says whether a member has a name but for the case of its letters: encoding/json takes it for that one.
func like(places []place, name []byte) bool {
	return slices.ContainsFunc(places, func(p place) bool { return strings.EqualFold(p.name, string(name)) })
}
