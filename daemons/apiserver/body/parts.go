package body

import (
	"bytes"
	"encoding/binary"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/request"
)

// The memory of a decoded body depends on its number of objects and lists (parts), not on its length: an empty
// container takes three bytes in the request, and more than a thousand times that after decoding, defaulting and
// comparing. The total of all bodies in progress is limited. Large bodies wait for each other, in the order of priority
// levels and flows that flow.Budget defines.
const (
	maxBodyParts      = 100_000 // objects and lists, in one body and in all bodies in progress
	reservedBodyParts = 25_000  // in addition, for priority levels without a body in progress
	freeBodyParts     = 500     // a body with at most this many parts never waits
)

// NewBudget returns the budget of the parts of all bodies in progress.
func NewBudget() *flow.Budget { return flow.NewBudget(maxBodyParts, reservedBodyParts) }

// ReserveParts waits until a body with that many parts may be decoded. It reserves the parts until the end of the
// request.
func ReserveParts(q *request.Request, parts int) error {
	switch {
	case parts > maxBodyParts:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has %d objects and lists, and may have %d",
			parts, maxBodyParts))
	case parts <= freeBodyParts || q.Answer.BodyBudget == nil || q.Answer.HoldsBodyBudget:
		return nil
	}
	share, err := q.Answer.BodyBudget.Acquire(q.HTTP.Context(), q.Answer.Schema, &q.User, &q.Request, int64(parts))
	if err != nil {
		return err
	}
	q.Answer.HoldsBodyBudget = true
	q.Answer.OnEnd(share.Release)
	return nil
}

// ReserveConvertedParts is ReserveParts for a body that must be converted to JSON first. It estimates the parts from
// the length.
func ReserveConvertedParts(q *request.Request, data []byte) error {
	const bytesOfPart = 16
	return ReserveParts(q, min(len(data)/bytesOfPart, maxBodyParts))
}

// CountJSONParts returns the number of objects and lists.
func CountJSONParts(data []byte) (parts int) {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			parts++
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return parts
}

// countProtobufParts returns the number of messages: the fields that parse as messages, empty ones included. Messages
// inside a truncated one count as well, because a decoder allocates them before it finds the error.
func countProtobufParts(data []byte) int {
	parts, _ := countMessages(bytes.TrimPrefix(data, []byte("k8s\x00")), 0)
	return parts
}

// maxMessageDepth is how many levels of messages are parsed. Only JSON schemas are recursive, and none that fits into a
// request is deeper.
const maxMessageDepth = 64

func countMessages(data []byte, depth int) (parts int, ok bool) {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 {
			return parts, false
		}
		data = data[n:]
		switch tag & 7 {
		case 0:
			if _, n = binary.Uvarint(data); n <= 0 {
				return parts, false
			}
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			size, head := binary.Uvarint(data)
			if head <= 0 || size > uint64(len(data)-head) {
				return parts, false
			}
			n = head + int(size)
			if depth < maxMessageDepth {
				within, whole := countMessages(data[head:n], depth+1)
				if parts += within; whole {
					parts++
				}
			}
		default:
			return parts, false
		}
		if n > len(data) {
			return parts, false
		}
		data = data[n:]
	}
	return parts, true
}
