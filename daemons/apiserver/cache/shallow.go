package cache

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/apiserver/scan"
	"clusterctl/daemons/kinds"
)

// shallow reads from an entry's JSON only what selectors need. The object is decoded when it is needed; at a start,
// most objects are not. shallow works only for JSON that this server wrote, and returns false otherwise.
func (e *Entry) shallow() bool {
	if e.kind.Untyped != nil || kept[e.kind.Resource] || !e.locate() {
		return false
	}
	r := reading{Scanner: scan.Scanner{Data: e.json}, whole: e.kind.Fields != nil}
	read := func() bool { return r.object(0) }
	if of := e.kind.FieldPlaces; of != nil {
		found := make([][]byte, 2*len(of))
		r.places = places{of, found[:len(of)], found[len(of):]}
		read = r.sections
	}
	if !read() || r.Pos != len(e.json) || !r.ours(e.kind) {
		return false
	}
	var err error
	if e.Labels, err = sharedLabels.of(r.labels); err != nil {
		return false
	}
	switch {
	case e.kind.Fields == nil:
		return true
	case r.places.of != nil:
		var ok bool
		e.values, ok = r.places.values()
		return ok
	}
	pool, ok := scratch.Load(e.kind)
	if !ok {
		pool, _ = scratch.LoadOrStore(e.kind, &sync.Pool{New: func() any { return e.kind.New() }})
	}
	obj := pool.(*sync.Pool).Get().(runtime.Object)
	if objectjson.Read(r.thin, obj) != nil {
		return false
	}
	e.index(e.kind.Fields(obj))
	reflect.ValueOf(obj).Elem().SetZero()
	pool.(*sync.Pool).Put(obj)
	return true
}

// scratch holds reusable objects for each kind, into which the fields are decoded.
var scratch sync.Map

// labelled reads the labels of an entry whose metadata has been located.
func (e *Entry) labelled() error {
	r := reading{Scanner: scan.Scanner{Data: e.json, Pos: int(e.splice) - 1}}
	if !r.metadata() {
		return fmt.Errorf("read the metadata of %s: it is not as it was written", e.Key)
	}
	var err error
	e.Labels, err = sharedLabels.of(r.labels)
	return err
}

// index stores the values of an object's selectable fields.
func (e *Entry) index(set fields.Set) {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	e.values = make([]string, 0, 2*len(names))
	for _, name := range names {
		e.values = append(e.values, name, unique.Make(set[name]).Value())
	}
}

// reading is an object that is being read shallowly. thin is a reduced copy for the kind's Fields function. It has no
// metadata, nothing deeper than deepest, and no lists but short ones: of a pod, the addresses stay and the containers
// do not.
type reading struct {
	scan.Scanner
	whole      bool // whether thin is needed
	thin       []byte
	places     places // used instead of thin, for kinds that declare where their fields are
	labels     []byte
	kind       []byte
	apiVersion []byte
	versioned  bool
}

// deepest is the deepest object that may contain a selectable field; the root is 0.
const deepest = 2

// short is the length, in bytes, of the longest list that may contain selectable values, such as a pod's addresses.
const short = 160

func (r *reading) object(depth int) bool {
	if !r.Take('{') {
		return false
	}
	r.keep('{')
	for first := true; !r.Take('}'); {
		start := r.Pos
		name, ok := r.Name()
		if !ok {
			return false
		}
		switch c := r.Peek(); {
		case depth == 0 && string(name) == `"metadata"`:
			if !r.metadata() {
				return false
			}
		case c == '[' || c == '{' && (depth == deepest || !r.whole):
			if !r.Value() {
				return false
			}
			if c == '[' && r.Pos-start <= short {
				r.member(&first, start)
			}
		default:
			if c == '{' {
				r.member(&first, start)
				if !r.object(depth + 1) {
					return false
				}
				break
			}
			value := r.Pos
			if !r.Scalar() {
				return false
			}
			r.member(&first, start)
			switch {
			case depth > 0:
			case string(name) == `"kind"`:
				r.kind = r.Data[value:r.Pos]
			case string(name) == `"apiVersion"`:
				r.apiVersion = r.Data[value:r.Pos]
			}
		}
		if !r.Next('}') {
			return false
		}
	}
	r.keep('}')
	return true
}

// member appends the text since start, a member or its name, to thin.
func (r *reading) member(first *bool, start int) {
	if !*first {
		r.keep(',')
	}
	*first = false
	r.keep(r.Data[start:r.Pos]...)
}

func (r *reading) keep(text ...byte) {
	if r.whole {
		r.thin = append(r.thin, text...)
	}
}

func (r *reading) metadata() bool {
	return r.Members(func(name []byte) bool {
		start := r.Pos
		if !r.Value() {
			return false
		}
		switch string(name) {
		case `"labels"`:
			r.labels = r.Data[start:r.Pos]
		case `"resourceVersion"`:
			r.versioned = true
		}
		return true
	})
}

// ours reports whether the object is of the kind and in the form that this server writes.
func (r *reading) ours(k *kinds.Kind) bool {
	version, kind := k.GVK.ToAPIVersionAndKind()
	return !r.versioned && string(r.kind) == `"`+kind+`"` && string(r.apiVersion) == `"`+version+`"`
}
