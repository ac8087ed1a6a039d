package wire

import "encoding/binary"

// These are the types, classes and response codes that the daemon uses.
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
	NameError      = 3
	NotImplemented = 4
	Refused        = 5
	BadVersion     = 16
)

const (
	headerSize = 12
	optSize    = 11
	// UDPSize is the largest UDP message in bytes that the server accepts and sends. It avoids fragmentation on common
	// networks.
	UDPSize = 1232
	// PlainSize is the largest UDP answer in bytes to a client without EDNS.
	PlainSize = 512
	// MaxSize is the largest message in bytes.
	MaxSize = 65535
)

// These are the bits of the header's flags.
const (
	bitResponse           = 1 << 15
	bitAuthoritative      = 1 << 10
	bitTruncated          = 1 << 9
	bitRecursionDesired   = 1 << 8 // RD, recursion desired
	bitRecursionAvailable = 1 << 7 // RA, recursion available
	bitAuthenticData      = 1 << 5
	bitCheckingDisabled   = 1 << 4 // CD, checking disabled
	opcodeBits            = 15 << 11
)

// Query is a parsed query. It refers to the parsed message, and can be reused.
type Query struct {
	ID          uint16
	RawName     []byte // the name in the case of the question; nil if the question is malformed
	Name        Name   // the name in lower case
	Type, Class uint16

	EDNS   bool
	DO     bool // DNSSEC records are wanted
	Size   int  // largest UDP answer that the client accepts, in bytes
	Length int  // bytes of the message

	flags uint16
}

// Parse parses a message. The code is Success, or the reason why the query cannot be answered. ok is false if the
// message is not a query, and must not get an answer.
func (q *Query) Parse(message []byte) (code int, ok bool) {
	if len(message) < headerSize {
		return 0, false
	}
	q.ID, q.flags = binary.BigEndian.Uint16(message), binary.BigEndian.Uint16(message[2:])
	q.RawName, q.Type, q.Class, q.EDNS, q.DO, q.Size, q.Length = nil, 0, 0, false, false, PlainSize, len(message)
	if q.flags&bitResponse != 0 {
		return 0, false
	}
	if q.flags&opcodeBits != 0 {
		return NotImplemented, true
	}
	if binary.BigEndian.Uint16(message[4:]) != 1 {
		return FormatError, true
	}
	size, err := q.Name.Parse(message[headerSize:])
	rest := message[min(headerSize+size, len(message)):]
	if err != nil || len(rest) < 4 {
		return FormatError, true
	}
	q.RawName = message[headerSize : headerSize+size]
	q.Type, q.Class = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	code = q.parseOptions(message, rest[4:])
	if q.Type == TypeOPT && code == Success {
		code = FormatError
	}
	return code, true
}

// parseOptions parses the records after the question. Only the EDNS record is used.
func (q *Query) parseOptions(message, rest []byte) (code int) {
	additional := int(binary.BigEndian.Uint16(message[10:]))
	count := int(binary.BigEndian.Uint16(message[6:])) + int(binary.BigEndian.Uint16(message[8:])) + additional
	for left := count; left > 0; left-- {
		owner := skipName(rest)
		if owner == 0 || len(rest) < owner+10 {
			return FormatError
		}
		kind, size, ttl := binary.BigEndian.Uint16(rest[owner:]), binary.BigEndian.Uint16(
			rest[owner+2:],
		), binary.BigEndian.Uint32(rest[owner+4:])
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

// skipName returns the length of a name in a message, or 0 if it is malformed.
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

// RecursionDesired reports whether other servers may be asked.
func (q *Query) RecursionDesired() bool { return q.flags&bitRecursionDesired != 0 }

// CheckingDisabled reports whether the client also wants answers that fail DNSSEC validation.
func (q *Query) CheckingDisabled() bool { return q.flags&bitCheckingDisabled != 0 }

// AuthenticDataRequested reports whether the client wants to know if an answer was validated.
func (q *Query) AuthenticDataRequested() bool { return q.flags&bitAuthenticData != 0 || q.DO }

// Limit returns the maximum size of the answer in bytes.
func (q *Query) Limit(tcp bool) int {
	if tcp {
		return MaxSize
	}
	return min(q.Size, UDPSize)
}
