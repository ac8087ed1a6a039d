// Package scan walks over JSON as the API server itself writes it, compact, without decoding it. What a value means
// is its callers' business.
package scan

// Scanner is a place in a document. Its methods return false, and leave the place where it is of no use, when the
// document is not as expected there.
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

// Take passes over a byte if it is the next one.
func (s *Scanner) Take(c byte) bool {
	if s.Pos < len(s.Data) && s.Data[s.Pos] == c {
		s.Pos++
		return true
	}
	return false
}

// String passes over a string.
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

// Scalar passes over a string, a number, true, false or null.
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

// Name passes over a member's name and its colon, and returns the name with its quotes.
func (s *Scanner) Name() ([]byte, bool) {
	start := s.Pos
	if !s.String() || !s.Take(':') {
		return nil, false
	}
	return s.Data[start : s.Pos-1], true
}

// Members passes over an object, and has f pass over the value of each of its members, whose name, with its quotes,
// it is told.
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

// Next passes over the comma between two members or items; false if neither one nor the end comes.
func (s *Scanner) Next(end byte) bool {
	return s.Take(',') || s.Peek() == end
}

// Value passes over any value.
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
