package loop

import (
	"reflect"
	"strings"
)

// shelfSize is in bytes. As much may be kept for one text, or one value, that is left of them.
const shelfSize = 1024

// Shelf puts texts that live side by side. Among the garbage that decoding leaves, one of 16 bytes keeps a page of 8
// KiB.
type Shelf struct {
	text strings.Builder // what is full is forgotten here, and lives with the texts on it
}

// Keep replaces texts by copies that are kept together.
func (s *Shelf) Keep(texts ...*string) {
	size := 0
	for _, text := range texts {
		size += len(*text)
	}
	if size > s.text.Cap()-s.text.Len() {
		s.text = strings.Builder{}
		s.text.Grow(max(size, shelfSize))
	}
	for _, text := range texts {
		from := s.text.Len()
		s.text.WriteString(*text)
		*text = s.text.String()[from:]
	}
}

// Row is the same for values. What is full is forgotten here, and lives with the lists in it.
type Row[T any] struct{ all []T }

// Keep returns a copy of a list that is kept beside others.
func (r *Row[T]) Keep(list []T) []T {
	if len(list) == 0 {
		return list
	}
	if len(list) > cap(r.all)-len(r.all) {
		r.all = make([]T, 0, max(len(list), shelfSize/int(reflect.TypeFor[T]().Size())))
	}
	from := len(r.all)
	r.all = append(r.all, list...)
	return r.all[from:len(r.all):len(r.all)]
}

// One returns a copy of a value that is kept beside others.
func (r *Row[T]) One(value T) *T {
	if len(r.all) == cap(r.all) {
		r.all = make([]T, 0, max(1, shelfSize/int(reflect.TypeFor[T]().Size())))
	}
	r.all = append(r.all, value)
	return &r.all[len(r.all)-1]
}
