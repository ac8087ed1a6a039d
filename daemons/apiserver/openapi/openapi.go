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
	v2           func() (document, error)
	v2proto      func() (document, error)
	index        func() (document, error)
	v3           map[string]versionDocument // by path below /openapi/v3/
	allResources []servedResource
	externals    []ExternalVersion

	core func() (documentPart, error) // version 2 without custom resources
	// number of resources in core; it identifies core, because these resources never change
	builtIn int
	parts   map[*kinds.Kind]func() (documentPart, error) // version 2 of each custom resource
}

// versionDocument is a group version with its document, which is made when it is first requested.
type versionDocument struct {
	resources []servedResource
	get       func() (document, error)
}

type document struct {
	data []byte
	hash string
}

func encodeDocument(v any) (document, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return document{}, fmt.Errorf("encode an OpenAPI document: %w", err)
	}
	return newDocument(data), nil
}

func newDocument(data []byte) document {
	sum := sha256.Sum256(data)
	return document{data, strings.ToUpper(hex.EncodeToString(sum[:]))}
}

// New returns the documents of a list of kinds.
func New(list []*kinds.Kind) *Handler {
	return (&Handler{}).with(nil, servedResources(list), nil)
}

// With returns the documents of h with those of custom resources added, and with references to documents of other
// servers. Documents of old are reused if their kinds have not changed, so a change costs only the documents that it
// affects.
func (h *Handler) With(old *Handler, list []*kinds.Kind, elsewhere ...ExternalVersion) *Handler {
	return h.with(old, servedResources(list), elsewhere)
}

func (h *Handler) with(before *Handler, more []servedResource, elsewhere []ExternalVersion) *Handler {
	if before == nil {
		before = h
	}
	next := &Handler{
		v3:           maps.Clone(h.v3),
		allResources: slices.Concat(h.allResources, more),
		externals:    elsewhere,
		parts:        map[*kinds.Kind]func() (documentPart, error){},
	}
	if next.v3 == nil {
		next.v3 = map[string]versionDocument{}
	}
	fresh := map[schema.GroupVersion][]servedResource{}
	for _, r := range more {
		fresh[r.gvk.GroupVersion()] = nil
	}
	for _, r := range next.allResources {
		if list, ok := fresh[r.gvk.GroupVersion()]; ok {
			fresh[r.gvk.GroupVersion()] = append(list, r)
		}
	}
	for gv, some := range fresh {
		path := strings.TrimPrefix(basePath(gv), "/")
		if former, ok := before.v3[path]; ok && slices.EqualFunc(former.resources, some, servedResource.equal) {
			next.v3[path] = former
			continue
		}
		next.v3[path] = versionDocument{some, sync.OnceValues(func() (document, error) { return version3(some) })}
	}
	next.v2 = next.version2(before)
	next.v2proto = sync.OnceValues(func() (document, error) {
		plain, err := next.v2()
		if err != nil {
			return plain, err
		}
		data, err := encodeProtobuf(plain.data)
		return document{data, plain.hash}, err
	})
	next.index = sync.OnceValues(next.newIndex)
	return next
}

var documentInfo = jsonObject{"title": "Kubernetes", "version": "unversioned"}

func version3(list []servedResource) (document, error) {
	s := newSchemaSet(true)
	paths, err := s.pathsOf(list)
	if err != nil {
		return document{}, err
	}
	return encodeDocument(jsonObject{"openapi": "3.0.0", "info": documentInfo, "paths": paths,
		"components": jsonObject{"schemas": s.all}})
}

// pathsOf returns the paths of resources, and adds their schemas.
func (s *schemaSet) pathsOf(list []servedResource) (jsonObject, error) {
	s.register(list)
	paths := jsonObject{}
	for _, r := range list {
		if err := s.declare(r); err != nil {
			return nil, err
		}
		s.paths(paths, r)
	}
	return paths, nil
}

// newIndex returns the index of version 3. The hash in a URL changes with its document, so that clients can cache
// documents.
func (h *Handler) newIndex() (document, error) {
	paths := jsonObject{}
	for path, one := range h.v3 {
		d, err := one.get()
		if err != nil {
			return d, err
		}
		paths[path] = jsonObject{"serverRelativeURL": "/openapi/v3/" + path + "?hash=" + d.hash}
	}
	for _, e := range h.externals {
		if own := "/openapi/v3/" + e.Path; strings.HasPrefix(e.V3, own) {
			paths[e.Path] = jsonObject{"serverRelativeURL": e.V3}
		}
	}
	return encodeDocument(jsonObject{"paths": paths})
}

const (
	protoAccept = "proto-openapi.spec.v2"
	protoType   = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	get, kind := h.v2, "application/json"
	accept := header.Joined(r.Header, "Accept")
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		w.Header().Add("Vary", "Accept")
		if strings.Contains(accept, protoAccept) {
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
	requested := r.URL.Query().Get("hash")
	if requested != "" && requested != d.hash {
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
	if requested == d.hash {
		w.Header().Set("Cache-Control", "public, immutable")
	}
	if header.IsUnchanged(r, `"`+d.hash+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = wire.WriteDocument(w, r, d.data) // the client has left, or has received it
}
