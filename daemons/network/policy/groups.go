package policy

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/nft"
)

// peerGroup is the state of a group of pods that a policy's peer selects.
type peerGroup struct {
	isKnown bool
	slices  map[string]*Slice
	sets    map[setName]int // the sets in the tables, with the number of their users
}

// Slice is a part of a group's addresses, with the named ports of the pods that have them.
type Slice struct {
	Addresses []netip.Addr
	Ports     []Port
}

// Equal reports whether two slices have the same contents. nil equals nothing.
func (s *Slice) Equal(o *Slice) bool {
	return s != nil && o != nil && slices.Equal(s.Addresses, o.Addresses) && slices.Equal(s.Ports, o.Ports)
}

// SliceOf converts an EndpointSlice of a group.
func SliceOf(s *discoveryv1.EndpointSlice) *Slice {
	out := &Slice{}
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				out.Addresses = append(out.Addresses, a.Unmap())
			}
		}
	}
	for _, p := range s.Ports {
		if p.Name == nil || p.Port == nil || *p.Name == "" {
			continue
		}
		at := Port{Name: *p.Name, Protocol: nft.TCP, Number: uint16(*p.Port)}
		if p.Protocol != nil {
			at.Protocol = protocolNumber(*p.Protocol)
		}
		out.Ports = append(out.Ports, at)
	}
	return out
}

// fragment returns the slice's elements of a set for a family.
func (s *Slice) fragment(name setName, f nft.Family) *nft.Fragment {
	var list []nft.Element
	for _, a := range s.Addresses {
		if !isOfFamily(a, f) {
			continue
		}
		if name.port == "" {
			list = append(list, nft.Element{Key: nft.Key{Source: nft.SingleAddress(a)}})
			continue
		}
		for _, p := range s.Ports {
			if p.Name == name.port {
				list = append(list,
					nft.Element{Key: nft.Key{Destination: nft.SingleAddress(a), Protocol: p.Protocol, Port: p.Number}})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &nft.Fragment{Elements: map[string][]nft.Element{name.String(): list}}
}

func setKey(s setName) string              { return "set/" + s.String() }
func sliceKey(s setName, id string) string { return "set/" + s.String() + "/" + id }

func (n *Node) group(name string) *peerGroup {
	g := n.groups[name]
	if g == nil {
		g = &peerGroup{slices: map[string]*Slice{}, sets: map[setName]int{}}
		n.groups[name] = g
	}
	return g
}

// SetSlice sets the contents of a slice of a group. s is nil if the slice was deleted.
func (n *Node) SetSlice(groupName, id string, s *Slice) error {
	g := n.group(groupName)
	if s == nil {
		if g.slices[id] == nil {
			return nil
		}
		delete(g.slices, id)
	} else {
		g.slices[id] = s
	}
	var failures []error
	for set := range g.sets {
		failures = append(failures, n.putFragment(sliceKey(set, id), s.fragmentFunc(set)))
	}
	return errors.Join(failures...)
}

// fragmentFunc returns a function that builds the slice's fragment for a family.
func (s *Slice) fragmentFunc(name setName) func(nft.Family) *nft.Fragment {
	if s == nil {
		return noFragment
	}
	return func(f nft.Family) *nft.Fragment { return s.fragment(name, f) }
}

// SetKnownGroups sets the groups whose slices are completely known. It drops the other groups unless a rule needs them.
func (n *Node) SetKnownGroups(names map[string]bool) {
	for name := range names {
		n.group(name).isKnown = true
	}
	for name, g := range n.groups {
		if names[name] {
			continue
		}
		g.isKnown = false
		if len(g.sets) == 0 {
			delete(n.groups, name)
		}
	}
}

// useSet adds a user to a group's set. The first user adds the set to the tables.
func (n *Node) useSet(s setName) error {
	g := n.group(s.group)
	if g.sets[s]++; g.sets[s] > 1 {
		return nil
	}
	n.neededGroups = nil
	failures := []error{n.putFragment(setKey(s), func(nft.Family) *nft.Fragment {
		return &nft.Fragment{Sets: map[string]nft.Set{s.String(): s.set()}}
	})}
	for id, slice := range maps.All(g.slices) {
		failures = append(failures, n.putFragment(sliceKey(s, id), slice.fragmentFunc(s)))
	}
	return errors.Join(failures...)
}

// releaseSet removes a user from a set. The last user removes the set from the tables.
func (n *Node) releaseSet(s setName) error {
	g := n.group(s.group)
	if g.sets[s]--; g.sets[s] > 0 {
		return nil
	}
	delete(g.sets, s)
	n.neededGroups = nil
	var failures []error
	for id := range g.slices {
		failures = append(failures, n.putFragment(sliceKey(s, id), noFragment))
	}
	return errors.Join(append(failures, n.putFragment(setKey(s), noFragment))...)
}
