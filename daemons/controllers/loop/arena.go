package loop

import (
	"reflect"
	"strings"
)

// arenaSize is the size in bytes of one shared allocation. A single surviving text or value may keep that much in
// memory.
const arenaSize = 1024

// TextArena copies long-lived texts into shared allocations. A text of 16 bytes that stays among the garbage of
// decoding would keep a whole page of 8 KiB in memory.
type TextArena struct {
	text strings.Builder // a full builder is replaced; its memory lives as long as the texts in it
}

// Copy replaces texts by copies in a shared allocation.
func (s *TextArena) Copy(texts ...*string) {
	size := 0
	for _, text := range texts {
		size += len(*text)
	}
	if size > s.text.Cap()-s.text.Len() {
		s.text = strings.Builder{}
		s.text.Grow(max(size, arenaSize))
	}
	for _, text := range texts {
		from := s.text.Len()
		s.text.WriteString(*text)
		*text = s.text.String()[from:]
	}
}

// ValueArena is like TextArena, for lists of values of any type. A full allocation is replaced. Its memory lives as
// long as the lists in it.
type ValueArena[T any] struct{ all []T }

// Copy returns a copy of a list in a shared allocation.
func (r *ValueArena[T]) Copy(list []T) []T {
	if len(list) == 0 {
		return list
	}
	if len(list) > cap(r.all)-len(r.all) {
		r.all = make([]T, 0, max(len(list), arenaSize/int(reflect.TypeFor[T]().Size())))
	}
	from := len(r.all)
	r.all = append(r.all, list...)
	return r.all[from:len(r.all):len(r.all)]
}

// CopyOne returns a pointer to a copy of a value in a shared allocation.
func (r *ValueArena[T]) CopyOne(value T) *T {
	if len(r.all) == cap(r.all) {
		r.all = make([]T, 0, max(1, arenaSize/int(reflect.TypeFor[T]().Size())))
	}
	r.all = append(r.all, value)
	return &r.all[len(r.all)-1]
}
