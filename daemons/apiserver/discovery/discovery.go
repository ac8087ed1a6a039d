// Package discovery serves the lists of groups, versions and resources under /api and /apis, plain and aggregated. They
// follow from the kinds' declarations.
package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// Handler answers /api, /apis, /apis/GROUP, and the list of a group version.
type Handler struct {
	documents map[string]document // by path
	whole     map[string]document // aggregated documents of /api and /apis
	shown     map[string]shown    // by group

	// Addresses are the server addresses that /api returns.
	Addresses Addresses
}

// Addresses are the addresses at which clients reach the server.
type Addresses struct {
	Default string // host:port; if empty, /api returns no addresses
	Ranges  []AddressRange
}

// AddressRange is an additional server address for the clients of a network.
type AddressRange struct {
	Clients netip.Prefix
	Address string // host:port
}

// of returns the addresses for a client. client is its host:port.
func (a Addresses) of(client string) []metav1.ServerAddressByClientCIDR {
	list := []metav1.ServerAddressByClientCIDR{}
	if a.Default == "" {
		return list
	}
	list = append(list, metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: a.Default})
	from, err := netip.ParseAddrPort(client)
	for _, r := range a.Ranges {
		if err == nil && r.Clients.Contains(from.Addr().Unmap()) {
			list = append(list, metav1.ServerAddressByClientCIDR{ClientCIDR: r.Clients.String(),
				ServerAddress: r.Address})
		}
	}
	return list
}

// versions returns the APIVersions document of the core group for a client address.
func (h *Handler) versions(client string) metav1.APIVersions {
	return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: h.Addresses.of(client)}
}

// document is a response with its ETag.
type document struct {
	data []byte
	tag  string
}

func tagged(data []byte) document {
	sum := fnv.New64a()
	_, _ = sum.Write(data)
	return document{data, fmt.Sprintf(`"%X"`, sum.Sum64())}
}

// New returns the discovery documents of a list of kinds, and of the group versions that other servers serve. It reuses
// unchanged groups of was, which may be nil.
func New(was *Handler, list []*kinds.Kind, others ...Other) *Handler {
	h := &Handler{documents: map[string]document{}, whole: map[string]document{}, shown: map[string]shown{}}
	members, order := membersOf(list, others)
	h.add("/api", h.versions(""))
	var plain, core, named [][]byte
	for _, name := range order {
		of := *members[name]
		one, there := shown{}, false
		if was != nil {
			one, there = was.shown[name]
		}
		if !there || !one.of.same(of) {
			one = show(name, of)
		}
		h.shown[name] = one
		maps.Copy(h.documents, one.documents)
		if name == "" {
			core = append(core, one.whole)
		} else {
			plain, named = append(plain, one.plain), append(named, one.whole)
		}
	}
	h.documents["/apis"] = tagged(joined(`{"kind":"APIGroupList","apiVersion":"v1","groups":[`, plain))
	const head = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[`
	h.whole["/api"], h.whole["/apis"] = tagged(joined(head, core)), tagged(joined(head, named))
	return h
}

// joined returns the document of a list.
func joined(head string, items [][]byte) []byte {
	return slices.Concat([]byte(head), bytes.Join(items, []byte(",")), []byte("]}\n"))
}

func (h *Handler) add(path string, v any) { h.documents[path] = tagged(encode(v)) }

// encode returns the JSON of a value that can always be encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return append(data, '\n')
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Knows reports whether there is a document at a path.
func (h *Handler) Knows(path string) bool {
	_, ok := h.documents[strings.TrimSuffix(path, "/")]
	return ok
}

// ServeHTTP implements http.Handler, for the paths that it knows.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	document := h.documents[path]
	kind := runtime.ContentTypeJSON
	if whole, ok := h.whole[path]; ok {
		w.Header().Add("Vary", "Accept")
		if wantsAggregated(r) {
			document, kind = whole, aggregated
			w.Header().Set("Cache-Control", "public") // clients may cache it, and revalidate with the ETag
		} else if path == "/api" {
			document = tagged(encode(h.versions(r.RemoteAddr)))
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", document.tag)
	if header.Unchanged(r, document.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = wire.WriteDocument(w, r, document.data) // the client has left, or has received it
}

// wantsAggregated reports whether the client prefers the aggregated form to the plain one.
func wantsAggregated(r *http.Request) bool {
	for clause := range header.Elements(r.Header, "Accept") {
		clause = strings.ReplaceAll(clause, " ", "")
		switch {
		case strings.Contains(clause, "as=APIGroupDiscoveryList") && strings.Contains(clause, "v=v2") &&
			!strings.Contains(clause, "v=v2beta1"):
			return strings.HasPrefix(clause, runtime.ContentTypeJSON)
		case strings.Contains(clause, "as="):
		case clause == runtime.ContentTypeJSON || strings.HasPrefix(clause, "*/*"):
			return false
		}
	}
	return false
}
