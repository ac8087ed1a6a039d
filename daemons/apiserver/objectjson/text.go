package objectjson

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// jsonText is a JSON text and the position of the next token. Its methods skip white space before the token.
type jsonText struct {
	data  []byte
	pos   int
	depth int
	cache *stringCache
}

// stringCache caches strings that were decoded recently. API objects repeat many strings, and cached ones share memory.
type stringCache [256]string

// maxCachedString is the maximum length, in bytes, of strings in the cache.
const maxCachedString = 32

var stringCaches = sync.Pool{New: func() any { return new(stringCache) }}

func (w *stringCache) intern(b []byte) string {
	if len(b) == 0 || len(b) > maxCachedString {
		return string(b)
	}
	hash := uint32(len(b))
	for _, c := range b {
		hash = (hash ^ uint32(c)) * 16777619
	}
	word := &w[(hash>>8)%uint32(len(w))]
	if *word != string(b) {
		*word = string(b)
	}
	return *word
}

// maxDepth is how deep objects and lists may be nested. encoding/json supports more, at the cost of a larger stack.
const maxDepth = 500

// skipSpace skips white space.
func (t *jsonText) skipSpace() {
	for t.pos < len(t.data) {
		switch t.data[t.pos] {
		case ' ', '\n', '\t', '\r':
			t.pos++
		default:
			return
		}
	}
}

func (t *jsonText) isAtEnd() bool {
	t.skipSpace()
	return t.pos == len(t.data)
}

// take skips a character, and reports whether it is the next one.
func (t *jsonText) take(c byte) bool {
	t.skipSpace()
	if t.pos < len(t.data) && t.data[t.pos] == c {
		t.pos++
		return true
	}
	return false
}

// enter skips the opening character of an object or a list.
func (t *jsonText) enter(open byte) bool {
	t.depth++
	return t.depth <= maxDepth && t.take(open)
}

// leave skips the closing character of an object or a list, and reports whether it is the next one.
func (t *jsonText) leave(end byte) bool {
	if t.take(end) {
		t.depth--
		return true
	}
	return false
}

// literal skips a literal, and reports whether it is the next token.
func (t *jsonText) literal(w string) bool {
	t.skipSpace()
	if len(t.data)-t.pos >= len(w) && string(t.data[t.pos:t.pos+len(w)]) == w {
		t.pos += len(w)
		return true
	}
	return false
}

func (t *jsonText) null() bool { return t.literal("null") }

// quoted skips a string, and returns the bytes between the quotation marks. literal reports whether they have no
// escapes and are valid UTF-8.
func (t *jsonText) quoted() (inner []byte, literal, ok bool) {
	if !t.take('"') {
		return nil, false, false
	}
	from, literal, ascii := t.pos, true, true
	for t.pos < len(t.data) {
		switch c := t.data[t.pos]; {
		case unescapedBytes[c]:
			t.pos++
		case c == '"':
			inner = t.data[from:t.pos]
			t.pos++
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
			t.pos++
		}
	}
	return nil, false, false
}

// escape skips an escaped character.
func (t *jsonText) escape() bool {
	rest := t.data[t.pos+1:]
	if len(rest) == 0 {
		return false
	}
	if rest[0] != 'u' {
		t.pos += 2
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
	t.pos += 6
	return true
}

// name returns a member's name, which is valid as long as the text is. A name with escapes is left to encoding/json.
func (t *jsonText) name() ([]byte, bool) {
	inner, literal, ok := t.quoted()
	return inner, ok && literal
}

// string decodes a string.
func (t *jsonText) string() (s string, ok bool) {
	t.skipSpace()
	from := t.pos
	inner, literal, ok := t.quoted()
	if !ok || literal {
		return t.cache.intern(inner), ok
	}
	return s, json.Unmarshal(t.data[from:t.pos], &s) == nil
}

// digits skips one or more digits.
func (t *jsonText) digits() bool {
	from := t.pos
	for t.pos < len(t.data) && t.data[t.pos] >= '0' && t.data[t.pos] <= '9' {
		t.pos++
	}
	return t.pos > from
}

// number skips a number.
func (t *jsonText) number() bool {
	if t.take('-') && t.pos == len(t.data) {
		return false
	}
	if t.pos < len(t.data) && t.data[t.pos] == '0' {
		t.pos++
	} else if !t.digits() {
		return false
	}
	if t.pos < len(t.data) && t.data[t.pos] == '.' {
		t.pos++
		if !t.digits() {
			return false
		}
	}
	if t.pos < len(t.data) && (t.data[t.pos] == 'e' || t.data[t.pos] == 'E') {
		t.pos++
		if t.pos < len(t.data) && (t.data[t.pos] == '-' || t.data[t.pos] == '+') {
			t.pos++
		}
		return t.digits()
	}
	return true
}

// integer decodes an integer of that many bits. Numbers with a fraction or an exponent are left to encoding/json.
func (t *jsonText) integer(bits int) (int64, bool) {
	t.skipSpace()
	from := t.pos
	negative := t.take('-')
	if t.pos-from > 1 { // there was white space after the sign
		return 0, false
	}
	first := t.pos
	var n uint64
	for ; t.pos < len(t.data) && t.data[t.pos] >= '0' && t.data[t.pos] <= '9'; t.pos++ {
		n = 10*n + uint64(t.data[t.pos]-'0')
	}
	digits := t.pos - first
	if digits == 0 || digits > 18 || digits > 1 && t.data[first] == '0' {
		return 0, false
	}
	if t.pos < len(t.data) && (t.data[t.pos] == '.' || t.data[t.pos] == 'e' || t.data[t.pos] == 'E') {
		return 0, false
	}
	v := int64(n)
	if negative {
		v = -v
	}
	return v, bits == 64 || v == int64(int32(v))
}

// value skips any value, and returns its text, which is valid JSON.
func (t *jsonText) value() ([]byte, bool) {
	t.skipSpace()
	from := t.pos
	ok := t.skip()
	return t.data[from:t.pos], ok
}

func (t *jsonText) skip() bool {
	if t.pos == len(t.data) {
		return false
	}
	switch t.data[t.pos] {
	case '"':
		_, _, ok := t.quoted()
		return ok
	case 't':
		return t.literal("true")
	case 'f':
		return t.literal("false")
	case 'n':
		return t.literal("null")
	case '[':
		return t.members('[', ']')
	case '{':
		return t.members('{', '}')
	}
	return t.number()
}

// members skips an object or a list.
func (t *jsonText) members(open, end byte) bool {
	if !t.enter(open) {
		return false
	}
	if t.leave(end) {
		return true
	}
	for {
		if open == '{' {
			if _, _, ok := t.quoted(); !ok || !t.take(':') {
				return false
			}
		}
		t.skipSpace()
		if !t.skip() {
			return false
		}
		if t.leave(end) {
			return true
		}
		if !t.take(',') {
			return false
		}
	}
}

// isValid reports whether a text is one JSON value.
func isValid(data []byte) bool {
	t := jsonText{data: data}
	_, ok := t.value()
	return ok && t.isAtEnd() || !ok && json.Valid(data) // json.Valid also accepts values that are nested deeper
}

// matchesFold reports whether a member has the name, ignoring case. encoding/json accepts such names.
func matchesFold(places []memberTarget, name []byte) bool {
	return slices.ContainsFunc(places, func(p memberTarget) bool { return strings.EqualFold(p.name, string(name)) })
}
