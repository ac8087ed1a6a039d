package rules

import (
	"maps"
	"net/netip"
	"slices"

	"clusterctl/daemons/nft"
)

func (p *Port) clusterKey() nft.Key {
	return nft.Key{Destination: nft.SingleAddress(p.ClusterIP), Protocol: p.Proto, Port: p.Port}
}

func (p *Port) externalKeys() []nft.Key {
	keys := make([]nft.Key, len(p.External))
	for i, ip := range p.External {
		keys[i] = nft.Key{Destination: nft.SingleAddress(ip), Protocol: p.Proto, Port: p.Port}
	}
	return keys
}

func (p *Port) nodePortKey() nft.Key { return nft.Key{Protocol: p.Proto, Port: p.NodePort} }

// Table is a family's table of service rules. It is updated service by service.
type Table struct {
	*nft.Table
	destinationClaims
	machine Machine
}

// NewTable returns a family's table for a machine without services.
func NewTable(f nft.Family, m Machine) (*Table, error) {
	only := m.withFamily(f)
	table, err := nft.NewTable(f, TableName, baseFragment(f, only, m.hasNoNodePorts(f), 0))
	if err != nil {
		return nil, err
	}
	return &Table{Table: table, destinationClaims: newDestinationClaims(m), machine: only}, nil
}

// SetService sets the ports of a service. ports is empty if the service was deleted. It updates other services only if
// they want the same destination.
func (t *Table) SetService(service string, ports []Port) error {
	names := t.setPorts(service, ports)
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
			machine:  t.machine,
			owns:     t.isOwner,
			assigned: map[nft.Key]bool{},
		}
		for i := range t.ports[name] {
			b.addPort(&t.ports[name][i])
		}
		if err := t.Put(name, &b.Fragment); err != nil {
			return err
		}
	}
	return nil
}

// destinationClaims holds the ports of all services of a family, and decides which service gets a destination that
// several want.
//
// A service's cluster IP always belongs to the service, even if another service has it as an external IP. Otherwise a
// user who may write services could take the traffic of the API server or of DNS. Load balancer addresses take
// precedence over external IPs, because they come from the service's status, which its author cannot set. If two
// services want the same destination, the first by name gets it, even without endpoints.
type destinationClaims struct {
	ports map[string][]Port // by namespace/service
	// wants maps a destination to the services that want it, and given to those of them that got it from a load
	// balancer. own maps an address to the services with this cluster IP, and outside to those with it as an external
	// IP. All names are sorted.
	wants, balanced         map[nft.Key][]string
	clusterIPs, externalIPs map[netip.Addr][]string
	api                     []netip.AddrPort // endpoints that no Service can take over
}

func newDestinationClaims(m Machine) destinationClaims {
	return destinationClaims{api: m.API, ports: map[string][]Port{}, wants: map[nft.Key][]string{},
		balanced:   map[nft.Key][]string{},
		clusterIPs: map[netip.Addr][]string{}, externalIPs: map[netip.Addr][]string{}}
}

// Ports returns the ports of a service.
func (t *destinationClaims) Ports(service string) []Port { return t.ports[service] }

// All returns the ports of all services, in no order.
func (t *destinationClaims) All() (all []Port) {
	for _, ports := range t.ports {
		all = append(all, ports...)
	}
	return all
}

// setPorts sets the ports of a service. It returns the sorted names of all services whose rules may change.
func (t *destinationClaims) setPorts(service string, ports []Port) []string {
	concerned := map[string]bool{service: true}
	t.updateClaims(service, t.ports[service], concerned, removeName)
	if len(ports) == 0 {
		delete(t.ports, service)
	} else {
		t.ports[service] = ports
	}
	t.updateClaims(service, ports, concerned, insertName)
	return slices.Sorted(maps.Keys(concerned))
}

func insertName(names []string, name string) []string {
	at, ok := slices.BinarySearch(names, name)
	if ok {
		return names
	}
	return slices.Insert(slices.Clone(names), at, name)
}

func removeName(names []string, name string) []string {
	at, ok := slices.BinarySearch(names, name)
	if !ok {
		return names
	}
	return slices.Delete(slices.Clone(names), at, at+1)
}

// updateClaims adds a service's ports to the claims or removes them, and adds to concerned the other services that want
// the same destinations.
func (t *destinationClaims) updateClaims(
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
		note(updateNames(t.clusterIPs, p.ClusterIP, service, change))
		note(t.externalIPs[p.ClusterIP])
		note(updateNames(t.wants, p.clusterKey(), service, change))
		if p.NodePort != 0 {
			note(updateNames(t.wants, p.nodePortKey(), service, change))
		}
		for _, ip := range p.External {
			updateNames(t.externalIPs, ip, service, change)
		}
		for _, d := range p.externalKeys() {
			note(updateNames(t.wants, d, service, change))
			if slices.Contains(p.Balanced, d.Destination.First) {
				updateNames(t.balanced, d, service, change)
			}
		}
	}
}

// updateNames changes the names of a key's services, and returns the new list.
func updateNames[K comparable](all map[K][]string, key K, service string,
	change func([]string, string) []string) []string {
	list := change(all[key], service)
	if len(list) == 0 {
		delete(all, key)
	} else {
		all[key] = list
	}
	return list
}

// isOwner reports whether a destination belongs to the port's service.
func (t *destinationClaims) isOwner(d nft.Key, p *Port) bool {
	if d.Protocol == nft.TCP && slices.Contains(t.api, netip.AddrPortFrom(d.Destination.First, d.Port)) {
		return false
	}
	me := p.Namespace + "/" + p.Service
	if ip := d.Destination.First; ip.IsValid() && ip != p.ClusterIP && len(t.clusterIPs[ip]) > 0 {
		return false
	}
	list := t.wants[d]
	if ip := d.Destination.First; ip.IsValid() && ip == p.ClusterIP {
		// A service with the address as an external IP never takes it from the service with this cluster IP.
		list = slices.DeleteFunc(slices.Clone(list),
			func(name string) bool { _, own := slices.BinarySearch(t.clusterIPs[ip], name); return !own })
	} else if given := t.balanced[d]; len(given) > 0 {
		list = given
	}
	return len(list) > 0 && list[0] == me
}
