package wire

import "encoding/binary"

// What the daemon uses of the registries of types, classes and codes.
const (
	TypeA     = 1
	TypeNS    = 2
	TypeCNAME = 5
	TypeSOA   = 6
	TypePTR   = 12
	TypeTXT   = 16
	TypeAAAA  = 28
	TypeSRV   = 33
	TypeOPT   = 41
	TypeIXFR  = 251
	TypeAXFR  = 252
	TypeMAILB = 253
	TypeMAILA = 254
	TypeANY   = 255

	ClassIN  = 1
	ClassANY = 255

	Success        = 0
	FormatError    = 1
	ServerFailure  = 2
	NoName         = 3
	NotImplemented = 4
	Refused        = 5
	BadVersion     = 16
)

const (
	headerSize = 12
	optSize    = 11
	// UDPSize is the size of answers over UDP that the server takes and gives at most: one that no usual network cuts
	// into pieces.
	UDPSize = 1232
	// PlainSize is the size of an answer over UDP to who does not say what he takes.
	PlainSize = 512
	// MaxSize is that of any message.
	MaxSize = 65535
)

// Bits of the second word of the header.
const (
	bitResponse      = 1 << 15
	bitAuthoritative = 1 << 10
	bitTruncated     = 1 << 9
	bitWanted        = 1 << 8 // recursion desired
	bitAvailable     = 1 << 7 // recursion available
	bitAuthentic     = 1 << 5
	bitUnchecked     = 1 << 4 // checking disabled
	opcodeBits       = 15 << 11
)

// Query is a query with what an answer to it needs. It refers to the message that it was read from, and may be used
// again for another.
type Query struct {
	ID          uint16
	Asked       []byte // the name with the case that it was asked with; nil when the question could not be read
	Name        Name   // the same in lower case
	Type, Class uint16

	EDNS   bool
	DO     bool // DNSSEC's records are wanted
	Size   int  // of answers over UDP that the client takes
	Length int  // of the message

	flags uint16
}

// Parse reads a message. The code is Success, or why the query cannot be answered as it is. What is no query gets no
// answer: ok is false.
func (q *Query) Parse(message []byte) (code int, ok bool) {
	if len(message) < headerSize {
		return 0, false
	}
	q.ID, q.flags = binary.BigEndian.Uint16(message), binary.BigEndian.Uint16(message[2:])
	q.Asked, q.Type, q.Class, q.EDNS, q.DO, q.Size, q.Length = nil, 0, 0, false, false, PlainSize, len(message)
	if q.flags&bitResponse != 0 {
		return 0, false
	}
	if q.flags&opcodeBits != 0 {
		return NotImplemented, true
	}
	if binary.BigEndian.Uint16(message[4:]) != 1 {
		return FormatError, true
	}
	size, err := q.Name.Read(message[headerSize:])
	rest := message[min(headerSize+size, len(message)):]
	if err != nil || len(rest) < 4 {
		return FormatError, true
	}
	q.Asked = message[headerSize : headerSize+size]
	q.Type, q.Class = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	code = q.options(message, rest[4:])
	if q.Type == TypeOPT && code == Success {
		code = FormatError
	}
	return code, true
}

// options reads the records behind the question, of which only EDNS's matters.
func (q *Query) options(message, rest []byte) (code int) {
	additional := int(binary.BigEndian.Uint16(message[10:]))
	count := int(binary.BigEndian.Uint16(message[6:])) + int(binary.BigEndian.Uint16(message[8:])) + additional
	for left := count; left > 0; left-- {
		owner := skipName(rest)
		if owner == 0 || len(rest) < owner+10 {
			return FormatError
		}
		kind, size, ttl := binary.BigEndian.Uint16(
			rest[owner:],
		), binary.BigEndian.Uint16(
			rest[owner+2:],
		), binary.BigEndian.Uint32(
			rest[owner+4:],
		)
		length := owner + 10 + int(binary.BigEndian.Uint16(rest[owner+8:]))
		if len(rest) < length {
			return FormatError
		}
		rest = rest[length:]
		if kind != TypeOPT {
			continue
		}
		if q.EDNS || owner != 1 || left > additional {
			return FormatError
		}
		q.EDNS, q.DO, q.Size = true, ttl&(1<<15) != 0, max(int(size), PlainSize)
		if ttl>>16&0xff != 0 {
			code = BadVersion
		}
	}
	return code
}

// skipName returns the length of a name in a message, or 0 when it is malformed.
func skipName(b []byte) int {
	for at := 0; at < len(b); {
		switch length := int(b[at]); {
		case length == 0:
			return at + 1
		case length >= 0xc0:
			if at+2 > len(b) {
				return 0
			}
			return at + 2
		case length > maxLabel:
			return 0
		default:
			at += 1 + length
		}
	}
	return 0
}

// RecursionDesired reports whether others may be asked.
func (q *Query) RecursionDesired() bool { return q.flags&bitWanted != 0 }

// CheckingDisabled reports whether answers are wanted that a validating server would keep back.
func (q *Query) CheckingDisabled() bool { return q.flags&bitUnchecked != 0 }

// Authentic reports whether the client wants to know if an answer was validated.
func (q *Query) Authentic() bool { return q.flags&bitAuthentic != 0 || q.DO }

// Limit is the size of an answer.
func (q *Query) Limit(tcp bool) int {
	if tcp {
		return MaxSize
	}
	return min(q.Size, UDPSize)
}
