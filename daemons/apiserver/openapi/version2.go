package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kinds"
)

// Version 2 is one document of all resources, which is large if there are many custom resources. It is composed of
// parts that are encoded once: one part for built-in kinds and other servers' documents, and one part for each custom
// resource.

// part holds encoded members of the document's paths and definitions, without the surrounding braces.
type part struct{ paths, definitions []byte }

func encodePart(paths, definitions object) (part, error) {
	var p part
	for to, v := range map[*[]byte]object{&p.paths: paths, &p.definitions: definitions} {
		data, err := json.Marshal(v)
		if err != nil {
			return part{}, fmt.Errorf("encode an OpenAPI document: %w", err)
		}
		*to = data[1 : len(data)-1]
	}
	return p, nil
}

// coreOf returns the part without custom resources.
func coreOf(list []resource, elsewhere []Elsewhere) (part, error) {
	s := newSchemas(false)
	paths, err := s.pathsOf(list)
	if err != nil {
		return part{}, err
	}
	// Custom resources refer to these.
	s.define(reflect.TypeFor[metav1.ObjectMeta]())
	s.define(reflect.TypeFor[metav1.ListMeta]())
	for _, e := range elsewhere {
		if e.V2 != nil {
			// a document that cannot be read is the other server's error, and must not affect the rest
			_ = merge(paths, s.all, e)
		}
	}
	return encodePart(paths, s.all)
}

// partOf returns the part of a custom resource.
func partOf(r resource) (part, error) {
	s := newSchemas(false)
	paths, err := s.pathsOf([]resource{r})
	if err != nil {
		return part{}, err
	}
	name := declaredName(r)
	return encodePart(paths, object{name: s.all[name], name + "List": s.all[name+"List"]})
}

// version2 returns a function that makes the document, from parts of was where they are unchanged, and from new ones.
func (h *Handler) version2(was *Handler) func() (document, error) {
	var builtIn, declared []resource
	for _, r := range h.all {
		if r.kind.Untyped == nil {
			builtIn = append(builtIn, r)
		} else {
			declared = append(declared, r)
		}
	}
	h.builtIn = len(builtIn)
	switch {
	case was.core != nil && was.builtIn == len(builtIn) && slices.EqualFunc(was.elsewhere, h.elsewhere, Elsewhere.same):
		h.core = was.core
	default:
		h.core = sync.OnceValues(func() (part, error) { return coreOf(builtIn, h.elsewhere) })
	}
	for _, r := range declared {
		make := was.parts[r.kind]
		if make == nil {
			make = sync.OnceValues(func() (part, error) { return partOf(r) })
		}
		h.parts[r.kind] = make
	}
	core, parts := h.core, h.parts
	return sync.OnceValues(func() (document, error) { return assemble(core, declared, parts) })
}

func assemble(
	core func() (part, error),
	declared []resource,
	parts map[*kinds.Kind]func() (part, error),
) (document, error) {
	var paths, definitions [][]byte
	add := func(get func() (part, error)) error {
		p, err := get()
		if len(p.paths) > 0 {
			paths = append(paths, p.paths)
		}
		if len(p.definitions) > 0 {
			definitions = append(definitions, p.definitions)
		}
		return err
	}
	if err := add(core); err != nil {
		return document{}, err
	}
	for _, r := range declared {
		if err := add(parts[r.kind]); err != nil {
			return document{}, err
		}
	}
	about, err := json.Marshal(info)
	if err != nil {
		return document{}, fmt.Errorf("encode an OpenAPI document: %w", err)
	}
	var out bytes.Buffer
	out.WriteString(`{"definitions":{`)
	out.Write(bytes.Join(definitions, []byte(",")))
	out.WriteString(`},"info":`)
	out.Write(about)
	out.WriteString(`,"paths":{`)
	out.Write(bytes.Join(paths, []byte(",")))
	out.WriteString(`},"swagger":"2.0"}`)
	return hashed(out.Bytes()), nil
}
