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

// documentPart holds encoded members of the document's paths and definitions, without the surrounding braces.
type documentPart struct{ paths, definitions []byte }

func encodePart(paths, definitions jsonObject) (documentPart, error) {
	var p documentPart
	for to, v := range map[*[]byte]jsonObject{&p.paths: paths, &p.definitions: definitions} {
		data, err := json.Marshal(v)
		if err != nil {
			return documentPart{}, fmt.Errorf("encode an OpenAPI document: %w", err)
		}
		*to = data[1 : len(data)-1]
	}
	return p, nil
}

// coreOf returns the part without custom resources.
func coreOf(list []servedResource, elsewhere []ExternalVersion) (documentPart, error) {
	s := newSchemaSet(false)
	paths, err := s.pathsOf(list)
	if err != nil {
		return documentPart{}, err
	}
	// Custom resources refer to these.
	s.define(reflect.TypeFor[metav1.ObjectMeta]())
	s.define(reflect.TypeFor[metav1.ListMeta]())
	for _, e := range elsewhere {
		if e.V2 != nil {
			// a document that cannot be read is the other server's error, and must not affect the rest
			_ = mergeExternal(paths, s.all, e)
		}
	}
	return encodePart(paths, s.all)
}

// partOf returns the part of a custom resource.
func partOf(r servedResource) (documentPart, error) {
	s := newSchemaSet(false)
	paths, err := s.pathsOf([]servedResource{r})
	if err != nil {
		return documentPart{}, err
	}
	name := schemaName(r)
	return encodePart(paths, jsonObject{name: s.all[name], name + "List": s.all[name+"List"]})
}

// version2 returns a function that makes the document. It reuses the parts of old that are unchanged.
func (h *Handler) version2(old *Handler) func() (document, error) {
	var builtIn, declared []servedResource
	for _, r := range h.allResources {
		if r.kind.Untyped == nil {
			builtIn = append(builtIn, r)
		} else {
			declared = append(declared, r)
		}
	}
	h.builtIn = len(builtIn)
	switch {
	case old.core != nil && old.builtIn == len(builtIn) &&
		slices.EqualFunc(old.externals, h.externals, ExternalVersion.equal):
		h.core = old.core
	default:
		h.core = sync.OnceValues(func() (documentPart, error) { return coreOf(builtIn, h.externals) })
	}
	for _, r := range declared {
		make := old.parts[r.kind]
		if make == nil {
			make = sync.OnceValues(func() (documentPart, error) { return partOf(r) })
		}
		h.parts[r.kind] = make
	}
	core, parts := h.core, h.parts
	return sync.OnceValues(func() (document, error) { return assembleDocument(core, declared, parts) })
}

func assembleDocument(
	core func() (documentPart, error),
	declared []servedResource,
	parts map[*kinds.Kind]func() (documentPart, error),
) (document, error) {
	var paths, definitions [][]byte
	add := func(get func() (documentPart, error)) error {
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
	about, err := json.Marshal(documentInfo)
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
	return newDocument(out.Bytes()), nil
}
