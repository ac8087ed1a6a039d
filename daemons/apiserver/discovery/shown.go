package discovery

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"clusterctl/daemons/kinds"
)

// members is everything in a group. The group's documents follow from it.
type members struct {
	kinds  []member
	others []Other
}

// member is a kind, or an alias of one, in the group.
type member struct {
	kind     *kinds.Kind
	gvk      schema.GroupVersionKind
	resource string
}

func (m members) same(other members) bool {
	return slices.Equal(m.kinds, other.kinds) && slices.EqualFunc(m.others, other.others, func(a, b Other) bool {
		return a.GroupVersion == b.GroupVersion && a.Stale == b.Stale && len(a.Resources) == len(b.Resources) &&
			// lists are immutable, so comparing the address suffices
			(len(a.Resources) == 0 || &a.Resources[0] == &b.Resources[0])
	})
}

// membersOf sorts kinds and other servers' group versions into groups. It also returns the group names in the order of
// declaration.
func membersOf(list []*kinds.Kind, others []Other) (map[string]*members, []string) {
	groups := map[string]*members{}
	var order []string
	in := func(name string) *members {
		g := groups[name]
		if g == nil {
			g = &members{}
			groups[name] = g
			order = append(order, name)
		}
		return g
	}
	add := func(gvk schema.GroupVersionKind, resource string, k *kinds.Kind) {
		g := in(gvk.Group)
		g.kinds = append(g.kinds, member{k, gvk, resource})
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
		g.others = append(g.others, o)
	}
	return groups, order
}

// group returns the group with these members.
func (m members) group(name string) *group {
	g := &group{name: name}
	sorted := len(m.others) > 0
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
	for _, o := range m.others {
		g.versions = append(
			g.versions,
			&version{name: o.GroupVersion.Version, plain: o.Resources, whole: whole(o), stale: o.Stale},
		)
	}
	if sorted {
		slices.SortFunc(
			g.versions,
			func(a, b *version) int { return apiversion.CompareKubeAwareVersionStrings(b.name, a.name) },
		)
	}
	return g
}

// shown holds the documents of a group.
type shown struct {
	of        members
	documents map[string]document // of the group and its versions, by path
	plain     []byte              // its item in the list of groups
	whole     []byte              // its item in the aggregated list
}

func show(name string, of members) shown {
	g, out := of.group(name), shown{of: of, documents: map[string]document{}}
	base := "/api"
	if name != "" {
		base = "/apis/" + name
		one := g.plain()
		out.plain = bytes.TrimSuffix(encode(one), []byte("\n"))
		one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		out.documents[base] = tagged(encode(one))
	}
	for _, v := range g.versions {
		out.documents[base+"/"+v.name] = tagged(encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: schema.GroupVersion{Group: name, Version: v.name}.String(), APIResources: v.plain,
		}))
	}
	out.whole = bytes.TrimSuffix(encode(g.aggregated()), []byte("\n"))
	return out
}
