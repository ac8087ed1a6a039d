package endpoints

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// sliceSize is how many endpoints one slice holds at most, upstream's default.
const sliceSize = 100

// Group is the endpoints that can be in one slice.
type Group struct {
	Kind      discoveryv1.AddressType
	Ports     []discoveryv1.EndpointPort
	Endpoints map[string]discoveryv1.Endpoint // by Packing.Key
}

// Packing is how groups become slices. Endpoints stay in the slice that they are in, so that one endpoint's change is
// one slice's.
type Packing struct {
	Key func(discoveryv1.Endpoint) string // which endpoint of a group one in a slice is
	// a slice of the group without endpoints; those that are there get its labels
	New   func(g Group) *discoveryv1.EndpointSlice
	Same  func(a, b discoveryv1.Endpoint) bool // whether two with one key say the same; nil compares all that they say
	Empty bool                                 // a group without endpoints has a slice, which says so
}

// Fill returns the slices of a group: copies of those that exist, without what has gone, and with what is new where
// there is room; and new ones, which have no name yet. Slices that are not needed are left out.
func (p Packing) Fill(g Group, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	fresh := p.New(g)
	left := maps.Clone(g.Endpoints)
	var mine []*discoveryv1.EndpointSlice
	for _, slice := range existing {
		if slice.AddressType != g.Kind || !apiequality.Semantic.DeepEqual(slice.Ports, g.Ports) {
			continue
		}
		bare := *slice
		bare.Endpoints = nil
		updated := bare.DeepCopy()
		updated.Labels = maps.Clone(fresh.Labels)
		for _, e := range slice.Endpoints {
			key := p.Key(e)
			if now, ok := left[key]; ok {
				updated.Endpoints = append(updated.Endpoints, now)
				delete(left, key)
			}
		}
		mine = append(mine, updated)
	}
	rest := slices.Collect(maps.Values(left))
	slices.SortFunc(rest, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	// Fullest first: few slices change, and few are half empty.
	slices.SortStableFunc(
		mine,
		func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) },
	)
	for _, slice := range mine {
		n := min(sliceSize-len(slice.Endpoints), len(rest))
		slice.Endpoints = append(slice.Endpoints, rest[:n]...)
		rest = rest[n:]
	}
	for len(rest) > 0 || p.Empty && len(mine) == 0 {
		n := min(sliceSize, len(rest))
		slice := fresh.DeepCopy()
		slice.Endpoints = rest[:n:n]
		rest = rest[n:]
		mine = append(mine, slice)
	}
	return slices.DeleteFunc(mine, func(s *discoveryv1.EndpointSlice) bool {
		return len(s.Endpoints) == 0 && !(p.Empty && s == mine[0])
	})
}

// Differences returns the writes that change the existing slices into kept. Slices without a name are created, and
// existing slices that are not in kept are deleted. A new slice replaces a deleted one where possible, so that watchers
// see one update without a gap.
func (p Packing) Differences(kept, existing []*discoveryv1.EndpointSlice) (c Changes) {
	there := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, slice := range existing {
		there[slice.Name] = slice
	}
	for _, slice := range kept {
		if slice.Name == "" {
			c.Create = append(c.Create, slice)
			continue
		}
		have := there[slice.Name]
		delete(there, slice.Name)
		if !p.sameEndpoints(have.Endpoints, slice.Endpoints) ||
			!apiequality.Semantic.DeepEqual(have.Labels, slice.Labels) {
			c.Update = append(c.Update, slice)
		}
	}
	for _, slice := range existing {
		if there[slice.Name] != nil && slice.DeletionTimestamp == nil {
			c.Delete = append(c.Delete, slice)
		}
	}
	c.Replace()
	return c
}

func (p Packing) sameEndpoints(a, b []discoveryv1.Endpoint) bool {
	if p.Same == nil {
		return apiequality.Semantic.DeepEqual(a, b)
	}
	return slices.EqualFunc(a, b, p.Same)
}
