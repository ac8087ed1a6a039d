package cache

import (
	"sync/atomic"
	"weak"
)

// frames are the encodings of an event that are shared, while the garbage collector leaves them be: what thousands of
// watchers are told at once is encoded once.
type frames struct{ first atomic.Pointer[frame] }

type frame struct {
	key  any
	data weak.Pointer[[]byte]
	next *frame
}

// mostFrames is how many encodings of one event are shared. Who wants yet another makes it for himself.
const mostFrames = 8

// Frame returns what is sent of the event to those who want the same, which key says; make makes it for the first of
// them. It must not be changed.
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
	// Somebody who was faster has stored one that is the same, or another: then this one is not shared.
	e.frames.first.CompareAndSwap(first, &frame{key, weak.Make(&data), first})
	return data, nil
}
