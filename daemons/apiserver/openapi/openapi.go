// Package openapi serves the OpenAPI documents: version 2 as JSON and protobuf, and version 3 as one document for each
// group version. The schemas are made from the kinds' Go types when they are first requested.
package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// Handler answers /openapi/v2 and /openapi/v3.
type Handler struct {
	v2        func() (document, error)
	v2proto   func() (document, error)
	index     func() (document, error)
	v3        map[string]described // by path below /openapi/v3/
	all       []resource
	elsewhere []Elsewhere

	core func() (part, error) // version 2 without custom resources
	// number of resources in core; it identifies core, because these resources never change
	builtIn int
	parts   map[*kinds.Kind]func() (part, error) // version 2 of each custom resource
}

// described is a group version with its document, which is made when it is first requested.
type described struct {
	of  []resource
	get func() (document, error)
}

type document struct {
	data []byte
	hash string
}

func finish(v any) (document, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return document{}, fmt.Errorf("encode an OpenAPI document: %w", err)
	}
	return hashed(data), nil
}

func hashed(data []byte) document {
	sum := sha256.Sum256(data)
	return document{data, strings.ToUpper(hex.EncodeToString(sum[:]))}
}

// New returns the documents of a list of kinds.
func New(list []*kinds.Kind) *Handler {
	return (&Handler{}).with(nil, resources(list), nil)
}

// With returns the documents of h with those of custom resources added, and with references to documents of other
// servers. Documents of was are reused if their kinds have not changed, so a change costs only the documents that it
// affects.
func (h *Handler) With(was *Handler, list []*kinds.Kind, elsewhere ...Elsewhere) *Handler {
	return h.with(was, resources(list), elsewhere)
}

func (h *Handler) with(was *Handler, more []resource, elsewhere []Elsewhere) *Handler {
	if was == nil {
		was = h
	}
	next := &Handler{
		v3:        maps.Clone(h.v3),
		all:       slices.Concat(h.all, more),
		elsewhere: elsewhere,
		parts:     map[*kinds.Kind]func() (part, error){},
	}
	if next.v3 == nil {
		next.v3 = map[string]described{}
	}
	fresh := map[schema.GroupVersion][]resource{}
	for _, r := range more {
		fresh[r.gvk.GroupVersion()] = nil
	}
	for _, r := range next.all {
		if list, ok := fresh[r.gvk.GroupVersion()]; ok {
			fresh[r.gvk.GroupVersion()] = append(list, r)
		}
	}
	for gv, some := range fresh {
		path := strings.TrimPrefix(base(gv), "/")
		if had, ok := was.v3[path]; ok && slices.EqualFunc(had.of, some, resource.same) {
			next.v3[path] = had
			continue
		}
		next.v3[path] = described{some, sync.OnceValues(func() (document, error) { return version3(some) })}
	}
	next.v2 = next.version2(was)
	next.v2proto = sync.OnceValues(func() (document, error) {
		plain, err := next.v2()
		if err != nil {
			return plain, err
		}
		data, err := encodeProtobuf(plain.data)
		return document{data, plain.hash}, err
	})
	next.index = sync.OnceValues(next.list)
	return next
}

var info = object{"title": "Kubernetes", "version": "unversioned"}

func version3(list []resource) (document, error) {
	s := newSchemas(true)
	paths, err := s.pathsOf(list)
	if err != nil {
		return document{}, err
	}
	return finish(object{"openapi": "3.0.0", "info": info, "paths": paths, "components": object{"schemas": s.all}})
}

// pathsOf returns the paths of resources, and adds their schemas.
func (s *schemas) pathsOf(list []resource) (object, error) {
	s.register(list)
	paths := object{}
	for _, r := range list {
		if err := s.declare(r); err != nil {
			return nil, err
		}
		s.paths(paths, r)
	}
	return paths, nil
}

// list returns the index of version 3. The hash in a URL changes with its document, so that clients can cache
// documents.
func (h *Handler) list() (document, error) {
	paths := object{}
	for path, one := range h.v3 {
		d, err := one.get()
		if err != nil {
			return d, err
		}
		paths[path] = object{"serverRelativeURL": "/openapi/v3/" + path + "?hash=" + d.hash}
	}
	for _, e := range h.elsewhere {
		if own := "/openapi/v3/" + e.Path; strings.HasPrefix(e.V3, own) {
			paths[e.Path] = object{"serverRelativeURL": e.V3}
		}
	}
	return finish(object{"paths": paths})
}

const (
	protoAsked = "proto-openapi.spec.v2"
	protoType  = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	get, kind := h.v2, "application/json"
	accept := header.Joined(r.Header, "Accept")
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		w.Header().Add("Vary", "Accept")
		if strings.Contains(accept, protoAsked) {
			get, kind = h.v2proto, protoType
		}
	case path == "/openapi/v3":
		get = h.index
	default:
		found, ok := h.v3[strings.TrimPrefix(path, "/openapi/v3/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if accept != "" && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*") {
			http.Error(w, "only application/json is served", http.StatusNotAcceptable)
			return
		}
		get = found.get
	}
	d, err := get()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	asked := r.URL.Query().Get("hash")
	if asked != "" && asked != d.hash {
		// A URL with another hash must not get this content, because clients cache it forever.
		to := *r.URL
		query := to.Query()
		query.Set("hash", d.hash)
		to.RawQuery = query.Encode()
		http.Redirect(w, r, to.RequestURI(), http.StatusMovedPermanently)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", `"`+d.hash+`"`)
	if asked == d.hash {
		w.Header().Set("Cache-Control", "public, immutable")
	}
	if header.Unchanged(r, `"`+d.hash+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = wire.WriteDocument(w, r, d.data) // the client has left, or has received it
}
