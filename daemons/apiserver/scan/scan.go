// Package scan walks over compact JSON, as the API server writes it, without decoding it. Callers interpret the values.
package scan

// Scanner is a position in a document. Its methods return false if the document is not as expected at the position. The
// position is undefined then.
type Scanner struct {
	Data []byte
	Pos  int
}

// Peek returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Data) {
		return s.Data[s.Pos]
	}
	return 0
}

// Take skips a byte, and reports whether it is the next one.
func (s *Scanner) Take(c byte) bool {
	if s.Pos < len(s.Data) && s.Data[s.Pos] == c {
		s.Pos++
		return true
	}
	return false
}

// String skips a string.
func (s *Scanner) String() bool {
	if !s.Take('"') {
		return false
	}
	for i := s.Pos; i < len(s.Data); i++ {
		switch s.Data[i] {
		case '\\':
			i++
		case '"':
			s.Pos = i + 1
			return true
		}
	}
	return false
}

// Scalar skips a string, a number, true, false or null.
func (s *Scanner) Scalar() bool {
	if s.Peek() == '"' {
		return s.String()
	}
	for i := s.Pos; i < len(s.Data); i++ {
		switch s.Data[i] {
		case ',', '}', ']':
			ok := i > s.Pos
			s.Pos = i
			return ok
		case ' ', '\t', '\r', '\n', ':', '{', '[', '"':
			return false
		}
	}
	return false
}

// Name skips a member's name and its colon, and returns the name with its quotes.
func (s *Scanner) Name() ([]byte, bool) {
	start := s.Pos
	if !s.String() || !s.Take(':') {
		return nil, false
	}
	return s.Data[start : s.Pos-1], true
}

// Members skips an object. It calls f with each member's name, including quotes, and f must skip the member's value.
func (s *Scanner) Members(f func(name []byte) bool) bool {
	if !s.Take('{') {
		return false
	}
	for !s.Take('}') {
		name, ok := s.Name()
		if !ok || !f(name) || !s.Next('}') {
			return false
		}
	}
	return true
}

// Next skips the comma between two members or items. It returns false if neither a comma nor the end follows.
func (s *Scanner) Next(end byte) bool {
	return s.Take(',') || s.Peek() == end
}

// Value skips any value.
func (s *Scanner) Value() bool {
	for depth := 0; ; {
		switch s.Peek() {
		case '{', '[':
			depth++
			s.Pos++
		case '}', ']':
			depth--
			s.Pos++
		case ',', ':':
			if depth == 0 {
				return false
			}
			s.Pos++
			continue
		default:
			if !s.Scalar() {
				return false
			}
		}
		if depth <= 0 {
			return depth == 0
		}
	}
}
