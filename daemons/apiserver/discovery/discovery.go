// Package discovery tells clients what is served: the lists of groups, versions and
// resources under /api and /apis, plain and aggregated. All of it follows from the
// kinds' declarations.
package discovery

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// Handler answers /api, /apis, /apis/GROUP, and the list of a group version.
type Handler struct {
	documents map[string][]byte // by path
	whole     map[string][]byte // aggregated, for /api and /apis
}

// New returns the discovery of a list of kinds, and of what other servers serve.
func New(list []*kinds.Kind, others ...Other) *Handler {
	h := &Handler{documents: map[string][]byte{}, whole: map[string][]byte{}}
	groups, order := gather(list)
	order = include(groups, order, others)
	h.add("/api", metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	})
	all := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	whole := map[string][]apidiscovery.APIGroupDiscovery{"/api": {}, "/apis": {}}
	for _, name := range order {
		g := groups[name]
		base := "/apis/" + name
		if name == "" {
			base = "/api"
		} else {
			all.Groups = append(all.Groups, g.plain())
			one := g.plain()
			one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			h.add(base, one)
		}
		for _, v := range g.versions {
			h.add(base+"/"+v.name, metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: schema.GroupVersion{Group: name, Version: v.name}.String(), APIResources: v.plain,
			})
		}
		key := "/apis"
		if name == "" {
			key = "/api"
		}
		whole[key] = append(whole[key], g.aggregated())
	}
	h.add("/apis", all)
	for path, items := range whole {
		h.whole[path] = encode(apidiscovery.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()}, Items: items,
		})
	}
	return h
}

func (h *Handler) add(path string, v any) { h.documents[path] = encode(v) }

// encode returns the JSON of a value that always has one.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return append(data, '\n')
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Knows says whether there is a document at a path.
func (h *Handler) Knows(path string) bool { return h.documents[strings.TrimSuffix(path, "/")] != nil }

// ServeHTTP implements http.Handler, for the paths that it knows.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	document := h.documents[path]
	kind := runtime.ContentTypeJSON
	if whole := h.whole[path]; whole != nil {
		w.Header().Add("Vary", "Accept")
		if wantsAggregated(r) {
			document, kind = whole, aggregated
			w.Header().Set("Cache-Control", "public") // whoever keeps it has its tag to ask with
		}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(document)
	tag := fmt.Sprintf(`"%X"`, sum.Sum64())
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = wire.WriteDocument(w, r, document) // the client is gone, or has it
}

// wantsAggregated says whether the aggregated form comes before the plain one in what
// the client accepts.
func wantsAggregated(r *http.Request) bool {
	for _, clause := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		clause = strings.ReplaceAll(clause, " ", "")
		switch {
		case strings.Contains(clause, "as=APIGroupDiscoveryList") && strings.Contains(clause, "v=v2") && !strings.Contains(clause, "v=v2beta1"):
			return strings.HasPrefix(clause, runtime.ContentTypeJSON)
		case strings.Contains(clause, "as="):
		case clause == runtime.ContentTypeJSON || strings.HasPrefix(clause, "*/*"):
			return false
		}
	}
	return false
}

// gather sorts kinds into groups and versions, in the order in which they are declared.
func gather(list []*kinds.Kind) (map[string]*group, []string) {
	groups := map[string]*group{}
	var order []string
	add := func(gvk schema.GroupVersionKind, resource string, k *kinds.Kind) {
		g := groups[gvk.Group]
		if g == nil {
			g = &group{name: gvk.Group}
			groups[gvk.Group] = g
			order = append(order, gvk.Group)
		}
		i := slices.IndexFunc(g.versions, func(v *version) bool { return v.name == gvk.Version })
		if i < 0 {
			g.versions = append(g.versions, &version{name: gvk.Version})
			i = len(g.versions) - 1
		}
		g.versions[i].add(gvk, resource, k)
	}
	declared := map[string]bool{}
	for _, k := range list {
		if k.Untyped != nil {
			declared[k.GVK.Group] = true
		}
		add(k.GVK, k.Resource, k)
		for _, a := range k.Aliases {
			resource := a.Resource
			if resource == "" {
				resource = k.Resource
			}
			add(a.GVK, resource, k)
		}
	}
	// Several definitions make up a group: its versions are in the order of their names.
	for name := range declared {
		slices.SortFunc(groups[name].versions, func(a, b *version) int { return apiversion.CompareKubeAwareVersionStrings(b.name, a.name) })
	}
	return groups, order
}
