package rules

import (
	"maps"
	"net/netip"
	"slices"

	"clusterctl/daemons/nft"
)

func (p *Port) inner() nft.Key {
	return nft.Key{Destination: nft.One(p.ClusterIP), Protocol: p.Proto, Port: p.Port}
}

func (p *Port) outer() []nft.Key {
	keys := make([]nft.Key, len(p.External))
	for i, ip := range p.External {
		keys[i] = nft.Key{Destination: nft.One(ip), Protocol: p.Proto, Port: p.Port}
	}
	return keys
}

func (p *Port) atNode() nft.Key { return nft.Key{Protocol: p.Proto, Port: p.NodePort} }

// Table is a family's table of service rules. It is updated service by service.
type Table struct {
	*nft.Table
	claims
	machine Machine
}

// NewTable returns a family's table for a machine without services.
func NewTable(f nft.Family, m Machine) (*Table, error) {
	only := m.of(f)
	table, err := nft.NewTable(f, TableName, base(f, only, m.nowhere(f), 0))
	if err != nil {
		return nil, err
	}
	return &Table{Table: table, claims: newClaims(m), machine: only}, nil
}

// SetService sets the ports of a service. ports is empty if the service was deleted. It updates other services only if
// they want the same destination.
func (t *Table) SetService(service string, ports []Port) error {
	names := t.set(service, ports)
	if len(names) > 1 {
		// A destination may move from one service to another: remove all rules before adding any.
		for _, name := range names {
			if err := t.Put(name, nil); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		b := &builder{
			Fragment: nft.Fragment{
				Chains:   map[string]nft.Chain{},
				Sets:     map[string]nft.Set{},
				Elements: map[string][]nft.Element{},
			},
			machine: t.machine,
			owns:    t.owns,
			led:     map[nft.Key]bool{},
		}
		for i := range t.ports[name] {
			b.add(&t.ports[name][i])
		}
		if err := t.Put(name, &b.Fragment); err != nil {
			return err
		}
	}
	return nil
}

// claims holds the ports of all services of a family, and decides which service gets a destination that several want.
//
// A service's cluster IP always belongs to the service, even if another service has it as an external IP. Otherwise a
// user who may write services could take the traffic of the API server or of DNS. Load balancer addresses take
// precedence over external IPs, because they come from the service's status, which its author cannot set. If two
// services want the same destination, the first by name gets it, even without endpoints.
type claims struct {
	ports map[string][]Port // by namespace/service
	// wants maps a destination to the services that want it, and given to those of them that got it from a load
	// balancer. own maps an address to the services with this cluster IP, and outside to those with it as an external
	// IP. All names are sorted.
	wants, given map[nft.Key][]string
	own, outside map[netip.Addr][]string
	api          []netip.AddrPort // endpoints that no Service can take over
}

func newClaims(m Machine) claims {
	return claims{api: m.API, ports: map[string][]Port{}, wants: map[nft.Key][]string{}, given: map[nft.Key][]string{},
		own: map[netip.Addr][]string{}, outside: map[netip.Addr][]string{}}
}

// Ports returns the ports of a service.
func (t *claims) Ports(service string) []Port { return t.ports[service] }

// All returns the ports of all services, in no order.
func (t *claims) All() (all []Port) {
	for _, ports := range t.ports {
		all = append(all, ports...)
	}
	return all
}

// set sets the ports of a service. It returns the sorted names of all services whose rules may change.
func (t *claims) set(service string, ports []Port) []string {
	concerned := map[string]bool{service: true}
	t.claim(service, t.ports[service], concerned, without)
	if len(ports) == 0 {
		delete(t.ports, service)
	} else {
		t.ports[service] = ports
	}
	t.claim(service, ports, concerned, with)
	return slices.Sorted(maps.Keys(concerned))
}

func with(names []string, name string) []string {
	at, there := slices.BinarySearch(names, name)
	if there {
		return names
	}
	return slices.Insert(slices.Clone(names), at, name)
}

func without(names []string, name string) []string {
	at, there := slices.BinarySearch(names, name)
	if !there {
		return names
	}
	return slices.Delete(slices.Clone(names), at, at+1)
}

// claim adds a service's ports to the claims or removes them, and adds to concerned the other services that want the
// same destinations.
func (t *claims) claim(
	service string,
	ports []Port,
	concerned map[string]bool,
	change func([]string, string) []string,
) {
	note := func(names []string) {
		for _, name := range names {
			concerned[name] = true
		}
	}
	for i := range ports {
		p := &ports[i]
		note(claimed(t.own, p.ClusterIP, service, change))
		note(t.outside[p.ClusterIP])
		note(claimed(t.wants, p.inner(), service, change))
		if p.NodePort != 0 {
			note(claimed(t.wants, p.atNode(), service, change))
		}
		for _, ip := range p.External {
			claimed(t.outside, ip, service, change)
		}
		for _, d := range p.outer() {
			note(claimed(t.wants, d, service, change))
			if slices.Contains(p.Balanced, d.Destination.First) {
				claimed(t.given, d, service, change)
			}
		}
	}
}

// claimed changes the names of a key's services, and returns the new list.
func claimed[K comparable](all map[K][]string, key K, service string, change func([]string, string) []string) []string {
	list := change(all[key], service)
	if len(list) == 0 {
		delete(all, key)
	} else {
		all[key] = list
	}
	return list
}

// owns reports whether a destination belongs to the port's service.
func (t *claims) owns(d nft.Key, p *Port) bool {
	if d.Protocol == nft.TCP && slices.Contains(t.api, netip.AddrPortFrom(d.Destination.First, d.Port)) {
		return false
	}
	me := p.Namespace + "/" + p.Service
	if ip := d.Destination.First; ip.IsValid() && ip != p.ClusterIP && len(t.own[ip]) > 0 {
		return false
	}
	list := t.wants[d]
	if ip := d.Destination.First; ip.IsValid() && ip == p.ClusterIP {
		// A service with the address as an external IP never takes it from the service with this cluster IP.
		list = slices.DeleteFunc(
			slices.Clone(list),
			func(name string) bool { _, own := slices.BinarySearch(t.own[ip], name); return !own },
		)
	} else if given := t.given[d]; len(given) > 0 {
		list = given
	}
	return len(list) > 0 && list[0] == me
}
