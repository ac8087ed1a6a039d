package body

import "slices"

// isPlainJSON reports whether a document is JSON that means the same as YAML, so that it needs no conversion. Clients
// send JSON as YAML when they apply objects. Parsing it as YAML costs as much as the rest of a large apply request.
//
// Plain JSON is an object without spaces, duplicate names, fractions or large numbers. Its strings are ASCII without
// unusual escapes.
func isPlainJSON(text []byte) bool {
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	p := plainJSON{text: string(text)}
	return p.peek() == '{' && p.value(0) && p.pos == len(p.text)
}

// plainJSON is a position in a document.
type plainJSON struct {
	text string
	pos  int
}

const (
	maxPlainDepth = 64
	// maxPlainName is less than the length from which YAML refuses a name.
	maxPlainName = 512
	// maxPlainDigits is the number of digits that every 64-bit integer can have.
	maxPlainDigits = 18
	// manyNames is the number of names from which a map finds duplicates faster.
	manyNames = 16
)

func (p *plainJSON) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *plainJSON) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

// value skips a value. It returns false if the value is not plain.
func (p *plainJSON) value(depth int) bool {
	switch p.peek() {
	case '{':
		return depth < maxPlainDepth && p.object(depth+1)
	case '[':
		return depth < maxPlainDepth && p.list(depth+1)
	case '"':
		_, ok := p.string()
		return ok
	}
	for _, word := range []string{"true", "false", "null"} {
		if rest := p.text[p.pos:]; len(rest) > len(word) && rest[:len(word)] == word {
			p.pos += len(word)
			return true
		}
	}
	return p.integer()
}

func (p *plainJSON) object(depth int) bool {
	p.pos++
	if p.take('}') {
		return true
	}
	var few []string
	var many map[string]struct{}
	for {
		name, ok := p.string()
		if !ok || name == "" || name == "<<" || len(name) > maxPlainName || !p.take(':') {
			return false
		}
		switch {
		case many != nil:
			if _, isDuplicate := many[name]; isDuplicate {
				return false
			}
			many[name] = struct{}{}
		case slices.Contains(few, name):
			return false
		default:
			if few = append(few, name); len(few) > manyNames {
				many = make(map[string]struct{}, 2*len(few))
				for _, name := range few {
					many[name] = struct{}{}
				}
			}
		}
		if !p.value(depth) {
			return false
		}
		if p.take('}') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

func (p *plainJSON) list(depth int) bool {
	p.pos++
	if p.take(']') {
		return true
	}
	for p.value(depth) {
		if p.take(']') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
	return false
}

// string skips a string, and returns it as it is encoded.
func (p *plainJSON) string() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	for start := p.pos; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			return p.text[start : p.pos-1], true
		case c == '\\':
			p.pos++
			if c := p.peek(); c != '"' && c != '\\' && c != 'n' && c != 't' {
				return "", false
			}
		case c < ' ' || c > '~':
			return "", false
		}
	}
	return "", false
}

func (p *plainJSON) integer() bool {
	isNegative := p.take('-')
	start := p.pos
	for p.peek() >= '0' && p.peek() <= '9' {
		p.pos++
	}
	digits := p.text[start:p.pos]
	switch c := p.peek(); {
	case c != ',' && c != '}' && c != ']':
		return false
	case len(digits) == 0 || len(digits) > maxPlainDigits:
		return false
	}
	return digits[0] != '0' || len(digits) == 1 && !isNegative
}
