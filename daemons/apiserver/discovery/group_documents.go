package discovery

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"clusterctl/daemons/kinds"
)

// groupMembers is everything in a group. The group's documents follow from it.
type groupMembers struct {
	kinds     []groupMember
	externals []ExternalVersion
}

// groupMember is a kind, or an alias of one, in the group.
type groupMember struct {
	kind     *kinds.Kind
	gvk      schema.GroupVersionKind
	resource string
}

func (m groupMembers) equal(other groupMembers) bool {
	return slices.Equal(m.kinds, other.kinds) &&
		slices.EqualFunc(m.externals, other.externals, func(a, b ExternalVersion) bool {
			return a.GroupVersion == b.GroupVersion && a.Stale == b.Stale && len(a.Resources) == len(b.Resources) &&
				// lists are immutable, so comparing the address suffices
				(len(a.Resources) == 0 || &a.Resources[0] == &b.Resources[0])
		})
}

// groupMembersOf sorts kinds and other servers' group versions into groups. It also returns the group names in the
// order of declaration.
func groupMembersOf(list []*kinds.Kind, others []ExternalVersion) (map[string]*groupMembers, []string) {
	groups := map[string]*groupMembers{}
	var order []string
	in := func(name string) *groupMembers {
		g := groups[name]
		if g == nil {
			g = &groupMembers{}
			groups[name] = g
			order = append(order, name)
		}
		return g
	}
	add := func(gvk schema.GroupVersionKind, resource string, k *kinds.Kind) {
		g := in(gvk.Group)
		g.kinds = append(g.kinds, groupMember{k, gvk, resource})
	}
	for _, k := range list {
		add(k.GVK, k.Resource, k)
		for _, a := range k.Aliases {
			resource := a.Resource
			if resource == "" {
				resource = k.Resource
			}
			add(a.GVK, resource, k)
		}
	}
	for _, o := range others {
		g := in(o.GroupVersion.Group)
		g.externals = append(g.externals, o)
	}
	return groups, order
}

// group returns the group with these members.
func (m groupMembers) group(name string) *group {
	g := &group{name: name}
	sorted := len(m.externals) > 0
	for _, k := range m.kinds {
		sorted = sorted ||
			k.kind.Untyped != nil // a group may have several definitions, so its versions are sorted by name
		i := slices.IndexFunc(g.versions, func(v *version) bool { return v.name == k.gvk.Version })
		if i < 0 {
			g.versions = append(g.versions, &version{name: k.gvk.Version})
			i = len(g.versions) - 1
		}
		g.versions[i].add(k.gvk, k.resource, k.kind)
	}
	for _, o := range m.externals {
		g.versions = append(
			g.versions,
			&version{name: o.GroupVersion.Version, plain: o.Resources, aggregated: aggregatedResources(o),
				isStale: o.Stale},
		)
	}
	if sorted {
		slices.SortFunc(g.versions,
			func(a, b *version) int { return apiversion.CompareKubeAwareVersionStrings(b.name, a.name) })
	}
	return g
}

// groupDocuments holds the documents of a group.
type groupDocuments struct {
	members    groupMembers
	documents  map[string]document // of the group and its versions, by path
	plain      []byte              // its item in the list of groups
	aggregated []byte              // its item in the aggregated list
}

func newGroupDocuments(name string, of groupMembers) groupDocuments {
	g, out := of.group(name), groupDocuments{members: of, documents: map[string]document{}}
	base := "/api"
	if name != "" {
		base = "/apis/" + name
		one := g.plain()
		out.plain = bytes.TrimSuffix(encode(one), []byte("\n"))
		one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		out.documents[base] = newDocument(encode(one))
	}
	for _, v := range g.versions {
		out.documents[base+"/"+v.name] = newDocument(encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: schema.GroupVersion{Group: name, Version: v.name}.String(), APIResources: v.plain,
		}))
	}
	out.aggregated = bytes.TrimSuffix(encode(g.aggregated()), []byte("\n"))
	return out
}
