package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pythonLiteral returns the value of a Python literal, because Ansible reads values in INI so: numbers, quoted strings,
// lists, tuples, dictionaries, True, False and None. It returns text that is not a literal unchanged.
func pythonLiteral(text string) any {
	p := &pythonParser{rest: strings.TrimLeft(text, " \t")}
	v, err := p.tuple()
	if err != nil || p.next() != 0 {
		return text
	}
	if b, ok := v.(pythonBytes); ok {
		return string(b)
	}
	return v
}

// pythonBytes is the value of a bytes literal such as b"x".
type pythonBytes string

// maxLiteralDepth is the maximum nesting depth of a literal.
const maxLiteralDepth = 50

var errNotLiteral = errors.New("no literal of Python")

type pythonParser struct {
	rest  string
	depth int
}

// next skips white space and returns the next byte without consuming it. It returns 0 at the end of the text and at a
// comment.
func (p *pythonParser) next() byte {
	p.rest = strings.TrimLeft(p.rest, " \t\f")
	if p.rest == "" || p.rest[0] == '#' {
		return 0
	}
	return p.rest[0]
}

func (p *pythonParser) accept(c byte) bool {
	if p.next() != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// tuple reads one value, or several values separated by commas, which it returns as a list.
func (p *pythonParser) tuple() (any, error) {
	first, err := p.value()
	if err != nil || p.next() != ',' {
		return first, err
	}
	list := []any{plainBytes(first)}
	for p.accept(',') {
		if c := p.next(); c == 0 || c == ')' {
			break
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, plainBytes(v))
	}
	return list, nil
}

func plainBytes(v any) any {
	if b, ok := v.(pythonBytes); ok {
		return string(b)
	}
	return v
}

func (p *pythonParser) value() (any, error) {
	if p.depth++; p.depth > maxLiteralDepth {
		return nil, errNotLiteral
	}
	defer func() { p.depth-- }()
	switch c := p.next(); {
	case c == '[':
		return p.list()
	case c == '(':
		return p.parenthesized()
	case c == '{':
		return p.dictionary()
	case c == '+' || c == '-':
		return p.signed()
	case c >= '0' && c <= '9' || c == '.':
		return p.number()
	case c == '\'' || c == '"':
		return p.strings()
	}
	for _, word := range []struct {
		text  string
		value any
	}{{"True", true}, {"False", false}, {"None", nil}} {
		if after, ok := strings.CutPrefix(p.rest, word.text); ok && !startsName(after) {
			p.rest = after
			return word.value, nil
		}
	}
	return p.strings() // a string with a prefix such as r"", or an error
}

func startsName(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
		r >= utf8.RuneSelf && text != ""
}

func (p *pythonParser) list() (any, error) {
	p.rest = p.rest[1:]
	list := []any{}
	for !p.accept(']') {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, plainBytes(v))
		if !p.accept(',') && p.next() != ']' {
			return nil, errNotLiteral
		}
	}
	return list, nil
}

func (p *pythonParser) parenthesized() (any, error) {
	p.rest = p.rest[1:]
	if p.accept(')') {
		return []any{}, nil
	}
	v, err := p.tuple()
	if err == nil && !p.accept(')') {
		err = errNotLiteral
	}
	return v, err
}

func (p *pythonParser) dictionary() (any, error) {
	p.rest = p.rest[1:]
	values := map[string]any{}
	for !p.accept('}') {
		key, err := p.value()
		if err != nil || !p.accept(':') {
			return nil, errNotLiteral // JSON has no sets
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		name, err := keyText(plainBytes(key))
		if err != nil {
			return nil, err
		}
		values[name] = plainBytes(v)
		if !p.accept(',') && p.next() != '}' {
			return nil, errNotLiteral
		}
	}
	return values, nil
}

// keyText returns a dictionary key as the text of a JSON key.
func keyText(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case json.Number:
		return key.String(), nil
	case bool:
		return strconv.FormatBool(key), nil
	case nil:
		return "null", nil
	}
	return "", errNotLiteral
}

func (p *pythonParser) signed() (any, error) {
	minus := p.rest[0] == '-'
	p.rest = p.rest[1:]
	if c := p.next(); c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') {
		return nil, errNotLiteral
	}
	v, err := p.value()
	n, ok := v.(json.Number)
	if err != nil || !ok || !minus {
		return v, err
	}
	if after, negative := strings.CutPrefix(n.String(), "-"); negative {
		return json.Number(after), nil
	}
	if n == "0" {
		return n, nil
	}
	return "-" + n, nil
}

// number reads an integer of any size in base 2, 8, 10 or 16, or a floating-point number.
func (p *pythonParser) number() (any, error) {
	end := 0
	for end < len(p.rest) {
		c := p.rest[end]
		exponent := end > 0 && (p.rest[end-1] == 'e' || p.rest[end-1] == 'E') &&
			!strings.HasPrefix(strings.ToLower(p.rest), "0x")
		if startsName(p.rest[end:end+1]) && c < utf8.RuneSelf || c == '.' || exponent && (c == '+' || c == '-') {
			end++
			continue
		}
		break
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	if strings.HasPrefix(word, "_") || strings.HasSuffix(word, "_") || strings.Contains(word, "__") {
		return nil, errNotLiteral
	}
	digits := strings.ReplaceAll(word, "_", "")
	if len(digits) > 1 && digits[0] == '0' && strings.ContainsAny(digits[1:2], "xXoObB") ||
		strings.Trim(digits, "0123456789") == "" {
		base := 0
		if strings.Trim(digits, "0123456789") == "" {
			if base = 10; digits[0] == '0' && strings.Trim(digits, "0") != "" {
				return nil, errNotLiteral // Python 3 rejects leading zeros, as in 01
			}
		}
		if n, ok := new(big.Int).SetString(strings.ToLower(digits), base); ok {
			return json.Number(n.String()), nil
		}
		return nil, errNotLiteral
	}
	if strings.Trim(strings.ToLower(digits), "0123456789.e+-") != "" {
		return nil, errNotLiteral
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return nil, errNotLiteral
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), nil
}

// strings reads one or more adjacent string literals, which Python concatenates.
func (p *pythonParser) strings() (any, error) {
	var all strings.Builder
	bytes, n := false, 0
	for {
		c := p.next()
		prefix := ""
		for c != '\'' && c != '"' && len(prefix) < 2 && len(p.rest) > len(prefix)+1 &&
			strings.ContainsRune("rRbBuU", rune(p.rest[len(prefix)])) {
			prefix = p.rest[:len(prefix)+1]
			c = p.rest[len(prefix)]
		}
		if c != '\'' && c != '"' {
			break
		}
		kind := strings.ToLower(prefix)
		if kind == "uu" || kind == "ur" || kind == "ru" || kind == "bu" || kind == "ub" || kind == "rr" ||
			kind == "bb" || n > 0 && bytes != strings.Contains(kind, "b") {
			return nil, errNotLiteral
		}
		bytes = strings.Contains(kind, "b")
		p.rest = p.rest[len(prefix):]
		text, err := p.quoted(strings.Contains(kind, "r"))
		if err != nil {
			return nil, err
		}
		all.WriteString(text)
		n++
	}
	switch {
	case n == 0:
		return nil, errNotLiteral
	case bytes:
		return pythonBytes(all.String()), nil
	}
	return all.String(), nil
}

var pythonEscapes = map[byte]string{'\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v"}

func (p *pythonParser) quoted(raw bool) (string, error) {
	quote := p.rest[:1]
	if strings.HasPrefix(p.rest, strings.Repeat(quote, 3)) {
		quote = p.rest[:3]
	}
	rest := p.rest[len(quote):]
	var b strings.Builder
	for {
		switch {
		case rest == "":
			return "", errNotLiteral
		case strings.HasPrefix(rest, quote):
			p.rest = rest[len(quote):]
			return b.String(), nil
		case rest[0] != '\\':
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		case len(rest) == 1:
			return "", errNotLiteral
		case raw:
			b.WriteString(rest[:2])
			rest = rest[2:]
			continue
		}
		text, length, err := pythonEscape(rest[1:])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		rest = rest[1+length:]
	}
}

// pythonEscape decodes the escape sequence after a backslash. length is the number of bytes that it consumed.
func pythonEscape(rest string) (text string, length int, err error) {
	c := rest[0]
	if text, ok := pythonEscapes[c]; ok {
		return text, 1, nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case digits > 0:
		if len(rest) < 1+digits {
			return "", 0, errNotLiteral
		}
		n, err := strconv.ParseUint(rest[1:1+digits], 16, 32)
		if err != nil || n > utf8.MaxRune {
			return "", 0, errNotLiteral
		}
		return string(rune(n)), 1 + digits, nil
	case c >= '0' && c <= '7':
		for length < 3 && length < len(rest) && rest[length] >= '0' && rest[length] <= '7' {
			length++
		}
		n, err := strconv.ParseUint(rest[:length], 8, 32)
		return string(rune(n)), length, err
	case c == 'N':
		return "", 0, fmt.Errorf("names of characters: %w", errNotLiteral)
	}
	return `\` + rest[:1], 1, nil
}
