package endpoints

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// sliceSize is the maximum number of endpoints in one slice, upstream's default.
const sliceSize = 100

// Group holds the endpoints that may share a slice.
type Group struct {
	Kind      discoveryv1.AddressType
	Ports     []discoveryv1.EndpointPort
	Endpoints map[string]discoveryv1.Endpoint // by Packing.Key
}

// Packing defines how groups are distributed over slices. Endpoints stay in their slice, so that a change of one
// endpoint changes one slice.
type Packing struct {
	Key func(discoveryv1.Endpoint) string // identifies an endpoint within its group
	// New returns a slice of the group without endpoints; existing slices get its labels.
	New func(g Group) *discoveryv1.EndpointSlice
	// whether two endpoints with the same key are equal; nil compares all fields
	Same  func(a, b discoveryv1.Endpoint) bool
	Empty bool // an empty group gets a slice without endpoints
}

// Fill returns the slices of a group. Copies of existing slices lose endpoints that are gone and get new ones where
// there is room. Further slices are new and have no name yet. Slices that are not needed are left out.
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
	// Fill the fullest slices first: few slices change, and few are half empty.
	slices.SortStableFunc(mine,
		func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
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
	present := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, slice := range existing {
		present[slice.Name] = slice
	}
	for _, slice := range kept {
		if slice.Name == "" {
			c.Create = append(c.Create, slice)
			continue
		}
		current := present[slice.Name]
		delete(present, slice.Name)
		if !p.sameEndpoints(current.Endpoints, slice.Endpoints) ||
			!apiequality.Semantic.DeepEqual(current.Labels, slice.Labels) {
			c.Update = append(c.Update, slice)
		}
	}
	for _, slice := range existing {
		if present[slice.Name] != nil && slice.DeletionTimestamp == nil {
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
