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
	documents  map[string]document       // by path
	aggregated map[string]document       // aggregated documents of /api and /apis
	groups     map[string]groupDocuments // by group

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

// forClient returns the addresses for a client. client is its host:port.
func (a Addresses) forClient(client string) []metav1.ServerAddressByClientCIDR {
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
		ServerAddressByClientCIDRs: h.Addresses.forClient(client)}
}

// document is a response with its ETag.
type document struct {
	data []byte
	tag  string
}

func newDocument(data []byte) document {
	sum := fnv.New64a()
	_, _ = sum.Write(data)
	return document{data, fmt.Sprintf(`"%X"`, sum.Sum64())}
}

// New returns the discovery documents of a list of kinds, and of the group versions that other servers serve. It reuses
// unchanged groups of old, which may be nil.
func New(old *Handler, list []*kinds.Kind, others ...ExternalVersion) *Handler {
	h := &Handler{documents: map[string]document{}, aggregated: map[string]document{},
		groups: map[string]groupDocuments{}}
	members, order := groupMembersOf(list, others)
	h.add("/api", h.versions(""))
	var plain, core, named [][]byte
	for _, name := range order {
		of := *members[name]
		one, exists := groupDocuments{}, false
		if old != nil {
			one, exists = old.groups[name]
		}
		if !exists || !one.members.equal(of) {
			one = newGroupDocuments(name, of)
		}
		h.groups[name] = one
		maps.Copy(h.documents, one.documents)
		if name == "" {
			core = append(core, one.aggregated)
		} else {
			plain, named = append(plain, one.plain), append(named, one.aggregated)
		}
	}
	h.documents["/apis"] = newDocument(joinItems(`{"kind":"APIGroupList","apiVersion":"v1","groups":[`, plain))
	const head = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[`
	h.aggregated["/api"], h.aggregated["/apis"] = newDocument(joinItems(head, core)),
		newDocument(joinItems(head, named))
	return h
}

// joinItems returns the document of a list.
func joinItems(head string, items [][]byte) []byte {
	return slices.Concat([]byte(head), bytes.Join(items, []byte(",")), []byte("]}\n"))
}

func (h *Handler) add(path string, v any) { h.documents[path] = newDocument(encode(v)) }

// encode returns the JSON of a value that can always be encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return append(data, '\n')
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Has reports whether there is a document at a path.
func (h *Handler) Has(path string) bool {
	_, ok := h.documents[strings.TrimSuffix(path, "/")]
	return ok
}

// ServeHTTP implements http.Handler, for the paths that it knows.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	document := h.documents[path]
	kind := runtime.ContentTypeJSON
	if whole, ok := h.aggregated[path]; ok {
		w.Header().Add("Vary", "Accept")
		if wantsAggregated(r) {
			document, kind = whole, aggregatedType
			w.Header().Set("Cache-Control", "public") // clients may cache it, and revalidate with the ETag
		} else if path == "/api" {
			document = newDocument(encode(h.versions(r.RemoteAddr)))
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", document.tag)
	if header.IsUnchanged(r, document.tag) {
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
