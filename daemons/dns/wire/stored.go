package wire

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
)

// Stored is an answer of another server, prepared for many queries. It is immutable.
type Stored struct {
	message     []byte // without the EDNS record
	recordEnds  []int  // offsets of the ends of the records
	ttlOffsets  []int  // offsets of the times to live
	answers     int
	addressSets []addressSet
}

// addressSet is the position of consecutive addresses of one name in the answer.
type addressSet struct{ size, first, stride, count int }

func (s addressSet) end() int { return s.first + (s.count-1)*s.stride + s.size }

var errMalformedMessage = errors.New("malformed message")

// NewStored parses an answer without the EDNS record. It keeps the message.
func NewStored(message []byte) (*Stored, error) {
	if len(message) < headerSize || binary.BigEndian.Uint16(message[4:]) != 1 {
		return nil, errMalformedMessage
	}
	name := skipName(message[headerSize:])
	at := headerSize + name + 4
	if name == 0 || at > len(message) {
		return nil, errMalformedMessage
	}
	s := &Stored{message: message, answers: int(binary.BigEndian.Uint16(message[6:]))}
	count := s.answers + int(binary.BigEndian.Uint16(message[8:])) + int(binary.BigEndian.Uint16(message[10:]))
	var before []byte // name, type, class and TTL of the previous record
	for i := range count {
		owner := skipName(message[at:])
		data := at + owner + 10
		if owner == 0 || data > len(message) {
			return nil, errMalformedMessage
		}
		kind, size := binary.BigEndian.Uint16(message[at+owner:]), int(binary.BigEndian.Uint16(message[data-2:]))
		if data+size > len(message) {
			return nil, errMalformedMessage
		}
		s.ttlOffsets = append(s.ttlOffsets, at+owner+4)
		s.recordEnds = append(s.recordEnds, data+size)
		head := message[at : data-2]
		if last := len(s.addressSets) - 1; i < s.answers && last >= 0 && string(head) == string(before) &&
			size == s.addressSets[last].size &&
			s.addressSets[last].end() == at {
			s.addressSets[last].count++
			s.addressSets[last].stride = data + size - at
		} else if i < s.answers && (kind == TypeA && size == 4 || kind == TypeAAAA && size == 16) {
			s.addressSets = append(s.addressSets, addressSet{size: size, first: data, count: 1})
		}
		before = head
		at = data + size
	}
	if at != len(message) {
		return nil, errMalformedMessage
	}
	return s, nil
}

// Code returns the response code.
func (s *Stored) Code() int { return int(s.message[3] & 15) }

// Size returns the approximate memory of the answer in bytes.
func (s *Stored) Size() int { return len(s.message) + 8*(len(s.recordEnds)+len(s.ttlOffsets)) + 100 }

// Message returns the answer. The caller must not change it.
func (s *Stored) Message() []byte { return s.message }

// WriteReply writes the answer to a query for the same name into the memory of b. change returns the new time to live
// of a record. Addresses are in random order. If records do not fit, they are omitted and the answer is marked as
// truncated.
func (s *Stored) WriteReply(b []byte, q *Query, limit int, change func(ttl uint32) uint32) []byte {
	b = append(b[:0], s.message...)
	binary.BigEndian.PutUint16(b, q.ID)
	copy(b[headerSize:], q.RawName)
	flags := binary.BigEndian.Uint16(
		b[2:],
	)&(bitAuthenticData|15) | bitResponse | bitRecursionAvailable | q.flags&(bitRecursionDesired|bitCheckingDisabled)
	if !q.AuthenticDataRequested() {
		flags &^= bitAuthenticData
	}
	for _, at := range s.ttlOffsets {
		binary.BigEndian.PutUint32(b[at:], change(binary.BigEndian.Uint32(b[at:])))
	}
	for _, set := range s.addressSets {
		for i := set.count - 1; i > 0; i-- {
			swap(b[set.first+i*set.stride:][:set.size], b[set.first+rand.IntN(i+1)*set.stride:][:set.size])
		}
	}
	if q.EDNS {
		limit -= optSize
	}
	if len(b) > limit {
		end, whole := headerSize+len(q.RawName)+4, 0
		for whole < len(s.recordEnds) && s.recordEnds[whole] <= limit {
			end = s.recordEnds[whole]
			whole++
		}
		b = b[:end]
		authority := int(binary.BigEndian.Uint16(b[8:]))
		left := [3]int{
			min(whole, s.answers),
			min(max(whole-s.answers, 0), authority),
			max(whole-s.answers-authority, 0),
		}
		for i, n := range left {
			binary.BigEndian.PutUint16(b[6+2*i:], uint16(n))
		}
		if whole < s.answers+authority {
			flags |= bitTruncated
		}
	}
	binary.BigEndian.PutUint16(b[2:], flags)
	return AppendOPT(b, q, 0)
}

// Answers returns the number of records in the answer section.
func (s *Stored) Answers() int { return s.answers }
