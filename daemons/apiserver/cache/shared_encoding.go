package cache

import (
	"sync/atomic"
	"weak"
)

// sharedEncodings holds the shared encodings of an event, as weak references. An event for thousands of watches is
// encoded once.
type sharedEncodings struct {
	first atomic.Pointer[sharedEncoding]
}

type sharedEncoding struct {
	key  any
	data weak.Pointer[[]byte]
	next *sharedEncoding
}

// maxFrames is how many encodings of one event are shared. Further ones are not kept.
const maxFrames = 8

// Encoding returns the encoding of the event for key. make creates it for the first caller with an equal key. The
// result must not be changed.
func (e *Event) Encoding(key any, make func() ([]byte, error)) ([]byte, error) {
	first, n := e.encodings.first.Load(), 0
	for f := first; f != nil; f = f.next {
		if n++; f.key == key {
			if data := f.data.Value(); data != nil {
				return *data, nil
			}
		}
	}
	data, err := make()
	if err != nil || n >= maxFrames {
		return data, err
	}
	// If another caller has stored an encoding meanwhile, this one is not shared.
	e.encodings.first.CompareAndSwap(first, &sharedEncoding{key, weak.Make(&data), first})
	return data, nil
}
