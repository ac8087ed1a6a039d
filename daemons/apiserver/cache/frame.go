package cache

import (
	"sync/atomic"
	"weak"
)

// frames holds the shared encodings of an event, as weak references. An event for thousands of watches is encoded once.
type frames struct{ first atomic.Pointer[frame] }

type frame struct {
	key  any
	data weak.Pointer[[]byte]
	next *frame
}

// mostFrames is how many encodings of one event are shared. Further ones are not kept.
const mostFrames = 8

// Frame returns the encoding of the event for key. make creates it for the first caller with an equal key. The result
// must not be changed.
func (e *Event) Frame(key any, make func() ([]byte, error)) ([]byte, error) {
	first, n := e.frames.first.Load(), 0
	for f := first; f != nil; f = f.next {
		if n++; f.key == key {
			if data := f.data.Value(); data != nil {
				return *data, nil
			}
		}
	}
	data, err := make()
	if err != nil || n >= mostFrames {
		return data, err
	}
	// If another caller has stored an encoding meanwhile, this one is not shared.
	e.frames.first.CompareAndSwap(first, &frame{key, weak.Make(&data), first})
	return data, nil
}
