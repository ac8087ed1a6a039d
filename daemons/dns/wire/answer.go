package wire

import (
	"encoding/binary"
	"math/rand/v2"
)

// Section is a section of an answer.
type Section int

// These are the sections, in the order in which records must be added.
const (
	Answers Section = iota
	Authority
	Additional
)

// QuestionOffset is the offset of the question's name in an answer. Records with this name refer to it.
const QuestionOffset = headerSize

// Answer builds the answer to a query. It can be reused.
type Answer struct {
	b         []byte
	q         *Query
	limit     int // without the EDNS record
	counts    [3]int
	truncated bool // a record did not fit
}

// Start starts an answer in the memory of b, which grows if necessary.
func (a *Answer) Start(b []byte, q *Query, limit int) {
	a.b, a.q, a.limit, a.counts, a.truncated = append(b[:0], make([]byte, headerSize)...), q, limit, [3]int{}, false
	if q.EDNS {
		a.limit -= optSize
	}
	if q.RawName != nil {
		a.b = append(a.b, q.RawName...)
		a.b = binary.BigEndian.AppendUint16(a.b, q.Type)
		a.b = binary.BigEndian.AppendUint16(a.b, q.Class)
	}
}

// Restart removes the records.
func (a *Answer) Restart() { a.Start(a.b, a.q, a.Limit()) }

// Limit returns the maximum size of the answer in bytes.
func (a *Answer) Limit() int {
	if a.q.EDNS {
		return a.limit + optSize
	}
	return a.limit
}

// Count returns the number of records in a section.
func (a *Answer) Count(s Section) int { return a.counts[s] }

// Add adds a record whose name is already in the answer at offset owner. It returns the offset of the record's data. If
// the record does not fit, ok is false and the answer is marked as truncated. Additional records are optional, and do
// not mark it.
func (a *Answer) Add(s Section, owner int, kind uint16, ttl uint32, data ...[]byte) (at int, ok bool) {
	size := 0
	for _, d := range data {
		size += len(d)
	}
	before := len(a.b)
	b := a.appendName(owner)
	if len(b)+10+size > a.limit {
		a.b = b[:before]
		a.truncated = a.truncated || s != Additional
		return 0, false
	}
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, ClassIN)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	at = len(b)
	for _, d := range data {
		b = append(b, d...)
	}
	a.b = b
	a.counts[s]++
	return at, true
}

// appendName appends a reference to the name at offset owner, or a copy if the offset is too large for a reference.
func (a *Answer) appendName(owner int) []byte {
	if owner < 0x4000 {
		return binary.BigEndian.AppendUint16(a.b, 0xc000|uint16(owner))
	}
	return append(a.b, a.b[owner:owner+skipName(a.b[owner:])]...)
}

// Addresses adds the addresses of a name in random order. addresses is the concatenation of addresses of one family. If
// not all fit, a random selection is added.
func (a *Answer) Addresses(s Section, owner int, ttl uint32, kind uint16, addresses []byte) {
	size := 4
	if kind == TypeAAAA {
		size = 16
	}
	n := len(addresses) / size
	if n == 0 {
		return
	}
	start, added, first, stride := 0, 0, 0, 0
	if n > 1 {
		start = rand.IntN(n)
	}
	for i := range n {
		one := (start + i) % n * size
		at, ok := a.Add(s, owner, kind, ttl, addresses[one:one+size])
		if !ok {
			break
		}
		if added++; added == 1 {
			first = at
		} else {
			stride = at - first
			stride /= added - 1
		}
	}
	for i := added - 1; i > 0; i-- {
		swap(a.b[first+i*stride:][:size], a.b[first+rand.IntN(i+1)*stride:][:size])
	}
}

// swap swaps the contents of two slices, which may be identical.
func swap(x, y []byte) {
	for i := range x {
		x[i], y[i] = y[i], x[i]
	}
}

// Finish completes the answer and returns it.
func (a *Answer) Finish(code int, authoritative bool) []byte {
	copied := a.q.flags & (opcodeBits | bitRecursionDesired | bitCheckingDisabled)
	flags := bitResponse | copied | bitRecursionAvailable | uint16(code&15)
	if authoritative {
		flags |= bitAuthoritative
	}
	if a.truncated {
		flags |= bitTruncated
	}
	questions := 0
	if a.q.RawName != nil {
		questions = 1
	}
	a.writeHeader(flags, questions)
	return AppendOPT(a.b, a.q, code)
}

func (a *Answer) writeHeader(flags uint16, questions int) {
	binary.BigEndian.PutUint16(a.b, a.q.ID)
	binary.BigEndian.PutUint16(a.b[2:], flags)
	binary.BigEndian.PutUint16(a.b[4:], uint16(questions))
	for i, n := range a.counts {
		binary.BigEndian.PutUint16(a.b[6+2*i:], uint16(n))
	}
}

// AppendOPT appends the EDNS record to a finished message if the query had one. It copies the DO bit of the query, and
// has no options.
func AppendOPT(message []byte, q *Query, code int) []byte {
	if !q.EDNS {
		return message
	}
	message = append(message, 0, 0, TypeOPT)
	message = binary.BigEndian.AppendUint16(message, UDPSize)
	ttl := uint32(code>>4) << 24
	if q.DO {
		ttl |= 1 << 15
	}
	message = binary.BigEndian.AppendUint32(message, ttl)
	message = append(message, 0, 0)
	binary.BigEndian.PutUint16(message[10:], binary.BigEndian.Uint16(message[10:])+1)
	return message
}

// AddPacked adds a packed record with uncompressed names. It reports whether the record fits.
func (a *Answer) AddPacked(s Section, record []byte) bool {
	if len(a.b)+len(record) > a.limit {
		a.truncated = a.truncated || s != Additional
		return false
	}
	a.b = append(a.b, record...)
	a.counts[s]++
	return true
}

// Truncated reports whether a record did not fit.
func (a *Answer) Truncated() bool { return a.truncated }
