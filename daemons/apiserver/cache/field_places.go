package cache

import (
	"strings"
	"unique"

	"clusterctl/daemons/kinds"
)

// fieldPlaces holds the values of selectable fields, found while an object is read shallowly. It is for kinds that
// declare where their fields are: they have so many objects that decoding even part of them dominates the start.
type fieldPlaces struct {
	of    []kinds.FieldPath
	found [][]byte // encoded value of each field; nil if absent
	first [][]byte // encoded value of the first item, for fields in a list
}

// readSections reads an object of a kind that declares where its fields are.
func (r *shallowReader) readSections() bool {
	return r.Members(func(name []byte) bool {
		value, ok := r.Pos, false
		switch section := name[1 : len(name)-1]; {
		case string(section) == "metadata":
			ok = r.metadata()
		case r.Peek() == '{' && r.places.hasSection(section):
			ok = r.readSection(section)
		default:
			ok = r.Value()
		}
		switch string(name) {
		case `"kind"`:
			r.kind = r.Data[value:r.Pos]
		case `"apiVersion"`:
			r.apiVersion = r.Data[value:r.Pos]
		}
		return ok
	})
}

func (p *fieldPlaces) hasSection(section []byte) bool {
	for i := range p.of {
		if string(section) == p.of[i].Section {
			return true
		}
	}
	return false
}

func (r *shallowReader) readSection(section []byte) bool {
	return r.Members(func(name []byte) bool {
		name = name[1 : len(name)-1]
		at, list := -1, -1
		for i := range r.places.of {
			switch p := &r.places.of[i]; {
			case string(section) != p.Section:
			case string(name) == p.Member:
				at = i
			case p.List != "" && string(name) == p.List:
				list = i
			}
		}
		if list >= 0 && r.Peek() == '[' {
			return r.readList(list)
		}
		start := r.Pos
		if !r.Value() {
			return false
		}
		if at >= 0 {
			r.places.found[at] = r.Data[start:r.Pos]
		}
		return true
	})
}

// readList reads the list that a field is in. Only its first item counts.
func (r *shallowReader) readList(field int) bool {
	r.Pos++ // skip the opening bracket
	if r.Take(']') {
		return true
	}
	r.places.first[field] = []byte(`""`)
	if !r.Members(func(name []byte) bool {
		start := r.Pos
		if !r.Value() {
			return false
		}
		if string(name[1:len(name)-1]) == r.places.of[field].Item {
			r.places.first[field] = r.Data[start:r.Pos]
		}
		return true
	}) {
		return false
	}
	for r.Take(',') {
		if !r.Value() {
			return false
		}
	}
	return r.Take(']')
}

// values returns the fields' names and values, in order. It returns false if a value is encoded differently than this
// server encodes it.
func (p *fieldPlaces) values() ([]string, bool) {
	values := make([]string, 0, 2*len(p.of))
	for i := range p.of {
		place := &p.of[i]
		written := p.found[i]
		if p.first[i] != nil {
			written = p.first[i]
		}
		value, ok := decodeField(place, written)
		if !ok {
			return nil, false
		}
		values = append(values, place.Name, value)
	}
	return values, true
}

// decodeField converts an encoded value to the value that Kind.Fields returns.
func decodeField(place *kinds.FieldPath, written []byte) (string, bool) {
	switch text := string(written); {
	case place.IsBool && (text == "" || text == "null"):
		return "false", true
	case place.IsBool:
		return text, text == "true" || text == "false"
	case text == "" || text == "null" || text == `""`:
		return "", true
	case text[0] != '"' || strings.IndexByte(text, '\\') >= 0:
		return "", false
	case place.IsMostlyUnique:
		return strings.Clone(text[1 : len(text)-1]), true
	default:
		return unique.Make(text[1 : len(text)-1]).Value(), true
	}
}
