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
	if e.kind.Untyped != nil || pinnedResources[e.kind.Resource] || !e.locateVersion() {
		return false
	}
	r := shallowReader{Scanner: scan.Scanner{Data: e.encoded}, needsThin: e.kind.Fields != nil}
	read := func() bool { return r.object(0) }
	if of := e.kind.FieldPaths; of != nil {
		found := make([][]byte, 2*len(of))
		r.places = fieldPlaces{of, found[:len(of)], found[len(of):]}
		read = r.readSections
	}
	if !read() || r.Pos != len(e.encoded) || !r.isOwnForm(e.kind) {
		return false
	}
	var err error
	if e.Labels, err = sharedLabels.get(r.labels); err != nil {
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
	if objectjson.Read(r.reduced, obj) != nil {
		return false
	}
	e.indexFields(e.kind.Fields(obj))
	reflect.ValueOf(obj).Elem().SetZero()
	pool.(*sync.Pool).Put(obj)
	return true
}

// scratch holds reusable objects for each kind, into which the fields are decoded.
var scratch sync.Map

// readLabels reads the labels of an entry whose metadata has been located.
func (e *Entry) readLabels() error {
	r := shallowReader{Scanner: scan.Scanner{Data: e.encoded, Pos: int(e.versionOffset) - 1}}
	if !r.metadata() {
		return fmt.Errorf("read the metadata of %s: it is not as it was written", e.Key)
	}
	var err error
	e.Labels, err = sharedLabels.get(r.labels)
	return err
}

// indexFields stores the values of an object's selectable fields.
func (e *Entry) indexFields(set fields.Set) {
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

// shallowReader is an object that is being read shallowly. reduced is a reduced copy for the kind's Fields function.
// It has no metadata, nothing deeper than maxFieldDepth, and only short lists. For example, it has the addresses of a
// pod, but not the containers.
type shallowReader struct {
	scan.Scanner
	needsThin          bool // whether reduced is needed
	reduced            []byte
	places             fieldPlaces // used instead of reduced, for kinds that declare where their fields are
	labels             []byte
	kind               []byte
	apiVersion         []byte
	hasResourceVersion bool
}

// maxFieldDepth is the deepest object that may contain a selectable field; the root is 0.
const maxFieldDepth = 2

// maxListLength is the length, in bytes, of the longest list that may contain selectable values, such as a pod's
// addresses.
const maxListLength = 160

func (r *shallowReader) object(depth int) bool {
	if !r.Take('{') {
		return false
	}
	r.appendThin('{')
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
		case c == '[' || c == '{' && (depth == maxFieldDepth || !r.needsThin):
			if !r.Value() {
				return false
			}
			if c == '[' && r.Pos-start <= maxListLength {
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
	r.appendThin('}')
	return true
}

// member appends the text since start, a member or its name, to thin.
func (r *shallowReader) member(first *bool, start int) {
	if !*first {
		r.appendThin(',')
	}
	*first = false
	r.appendThin(r.Data[start:r.Pos]...)
}

func (r *shallowReader) appendThin(text ...byte) {
	if r.needsThin {
		r.reduced = append(r.reduced, text...)
	}
}

func (r *shallowReader) metadata() bool {
	return r.Members(func(name []byte) bool {
		start := r.Pos
		if !r.Value() {
			return false
		}
		switch string(name) {
		case `"labels"`:
			r.labels = r.Data[start:r.Pos]
		case `"resourceVersion"`:
			r.hasResourceVersion = true
		}
		return true
	})
}

// isOwnForm reports whether the object is of the kind and in the form that this server writes.
func (r *shallowReader) isOwnForm(k *kinds.Kind) bool {
	version, kind := k.GVK.ToAPIVersionAndKind()
	return !r.hasResourceVersion && string(r.kind) == `"`+kind+`"` && string(r.apiVersion) == `"`+version+`"`
}
