package zone

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"

	"clusterctl/daemons/dns/wire"
)

// Result is the result of a question.
type Result struct {
	Foreign bool   // the name is outside of the zone and nothing was added: ask other servers
	NoName  bool   // the name does not exist; otherwise it exists, possibly without such records
	Alias   []byte // target name of the last record, in wire format
	AliasAt int    // offset of that name in the answer
	Apex    int    // index of the first label of the name's zone
}

// question is a question that is being answered.
type question struct {
	*Zone
	name  *wire.Name
	kind  uint16
	owner int // offset of the name in the answer
	a     *wire.Answer
}

// Answer adds the records of a name with a type. The name is already in the answer at offset owner.
func (z *Zone) Answer(a *wire.Answer, name *wire.Name, kind uint16, owner int) Result {
	q := question{z, name, kind, owner, a}
	apex := name.Labels() - z.labels
	if apex < 0 || !bytes.Equal(name.From(apex), z.domain) {
		if host, ok := z.hosts[string(name.From(0))]; ok {
			q.addresses(host[0], host[1])
			return Result{}
		}
		return q.reverse()
	}
	r := q.inside(apex)
	r.Apex = apex
	return r
}

// inside answers for the cluster's domain. n is the number of labels in front of it.
func (q question) inside(n int) Result {
	if n == 0 {
		q.apex()
		return Result{}
	}
	switch last := string(q.name.Label(n - 1)); {
	case last == "svc" && n == 1, last == "pod" && n == 1, last == "dns" && n == 1:
		return Result{} // an empty non-terminal: there are only names below it
	case last == "svc":
		return q.below(n-1, q.serviceName)
	case last == "pod":
		return q.below(n-1, q.podName)
	case last == "dns" && n == 2 && string(q.name.Label(0)) == "ns":
		if s := q.service([]byte(q.server)); s != nil {
			q.addresses(s.v4, s.v6)
		}
		return Result{}
	case last == "dns-version" && n == 1:
		if q.wants(wire.TypeTXT) {
			q.add(wire.TypeTXT, []byte(version))
		}
		return Result{}
	}
	return Result{NoName: true}
}

// version is the version of the DNS specification, in the format of a TXT record.
const version = "\x051.1.0"

// apex answers for the name of the zone itself.
func (q question) apex() {
	if q.wants(wire.TypeSOA) {
		q.add(wire.TypeSOA, q.soa)
	}
	if q.wants(wire.TypeNS) {
		q.add(wire.TypeNS, q.ns)
	}
}

// Deny adds the SOA record, which limits how long a negative answer may be cached. The zone starts at the question's
// label apex.
func (z *Zone) Deny(a *wire.Answer, asked *wire.Name, apex int) {
	a.Add(wire.Authority, wire.Asked+asked.Start(apex), wire.TypeSOA, denied, z.soa)
}

// below answers for the n labels in front of svc or pod. The last of them is a namespace.
func (q question) below(n int, answer func(n int) Result) Result {
	if n == 1 {
		return Result{NoName: !q.namespace(q.name.Label(0))}
	}
	return answer(n)
}

// podName answers for address-as-label.namespace.pod.
func (q question) podName(n int) Result {
	ip, ok := undashed(string(q.name.Label(0)))
	if n != 2 || !ok || !q.namespace(q.name.Label(1)) {
		return Result{NoName: true}
	}
	v4, v6 := with(nil, nil, ip)
	q.addresses(v4, v6)
	return Result{}
}

// serviceName answers for [_port._protocol.][endpoint.]service.namespace.svc.
func (q question) serviceName(n int) Result {
	s := q.service(q.name.Between(n-2, n))
	switch below := n - 2; {
	case s == nil || s.hidden:
	case s.external != nil:
		if below == 0 {
			at, _ := q.a.Add(wire.Answers, q.owner, wire.TypeCNAME, q.ttl, s.external)
			if q.kind == wire.TypeCNAME || q.kind == wire.TypeANY {
				return Result{}
			}
			return Result{Alias: s.external, AliasAt: at}
		}
	case below == 0:
		q.addresses(s.v4, s.v6)
		if q.wants(wire.TypeSRV) {
			q.ports(s, func(port) bool { return true })
		}
		return Result{}
	case below == 1 && q.name.Label(0)[0] != '_':
		if at, there := s.host(string(q.name.Label(0))); there {
			q.addresses(s.hosts[at].v4, s.hosts[at].v6)
			return Result{}
		}
	case below == 1:
		// _tcp and similar names exist if there is a named port below them.
		protocol := q.name.Label(0)[1:]
		for _, p := range s.ports {
			if p.name != "" && p.protocol == string(protocol) {
				return Result{}
			}
		}
	case below == 2 && q.name.Label(0)[0] == '_' && q.name.Label(1)[0] == '_':
		name, protocol, there := q.name.Label(0)[1:], q.name.Label(1)[1:], false
		meant := func(p port) bool {
			return p.name != "" && p.name == string(name) && p.protocol == string(protocol)
		}
		for _, p := range s.ports {
			there = there || meant(p)
		}
		if there && q.wants(wire.TypeSRV) {
			q.ports(s, meant)
		}
		return Result{NoName: !there}
	}
	return Result{NoName: true}
}

// additional limits the targets of SRV records whose addresses are added, because more rarely fit.
const additional = 16

// ports adds the SRV records of the matching ports, and the addresses of their targets.
func (q question) ports(s *Service, meant func(port) bool) {
	count := 0
	for range s.targets(meant) {
		count++
	}
	weight := max(100/max(count, 1), 1)
	fixed := []byte{0, 0, byte(weight >> 8), byte(weight)}
	var names []int // offsets of the targets' names in the answer
	for t := range s.targets(meant) {
		at, ok := q.a.Add(wire.Answers, q.owner, wire.TypeSRV, q.ttl, fixed, t.data)
		if !ok {
			return
		}
		if len(names) < additional {
			names = append(names, at+len(fixed)+portSize)
		}
	}
	var told []int
	for t := range s.targets(meant) {
		if len(names) == 0 {
			return
		}
		if !slices.Contains(told, t.host) {
			v4, v6 := s.v4, s.v6
			if t.host >= 0 {
				v4, v6 = s.hosts[t.host].v4, s.hosts[t.host].v6
			}
			q.a.Addresses(wire.Additional, names[0], q.ttl, wire.TypeA, v4)
			q.a.Addresses(wire.Additional, names[0], q.ttl, wire.TypeAAAA, v6)
			told = append(told, t.host)
		}
		names = names[1:]
	}
}

func (q question) wants(kind uint16) bool { return q.kind == kind || q.kind == wire.TypeANY }

func (q question) add(kind uint16, data []byte) {
	q.a.Add(wire.Answers, q.owner, kind, q.ttl, data)
}

// addresses adds the addresses of the requested type.
func (q question) addresses(v4, v6 []byte) {
	if q.wants(wire.TypeA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeA, v4)
	}
	if q.wants(wire.TypeAAAA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeAAAA, v6)
	}
}

// reverse answers for reverse names. For the networks of pods and services, this server is authoritative. Of other
// addresses, it only knows those of endpoints.
func (q question) reverse() Result {
	ip, bits, exact, ok := address(q.name)
	if !ok {
		return Result{Foreign: true}
	}
	step, root := 8, q.name.Labels()-2
	if ip.Is6() {
		step = 4
	}
	for _, network := range q.networks {
		// A zone starts at a label boundary: 10.96.0.0/12 corresponds to sixteen zones with two labels.
		size := (network.Bits() + step - 1) / step
		if network.Addr().BitLen() != ip.BitLen() || bits < size*step || !network.Contains(ip) {
			continue
		}
		r := Result{Apex: root - size}
		switch {
		case bits == size*step && r.Apex == 0:
			q.apex()
		case !exact:
			r.NoName = true
		case bits == ip.BitLen():
			r.NoName = !q.pointers(ip)
		}
		return r
	}
	if !exact || bits != ip.BitLen() || !q.pointers(ip) {
		return Result{Foreign: true}
	}
	return Result{Apex: 0}
}

// pointers adds the PTR records of an address, and reports whether it has a name.
func (q question) pointers(ip netip.Addr) bool {
	names := q.namesOf(ip)
	if q.wants(wire.TypePTR) {
		for _, n := range names {
			q.add(wire.TypePTR, n)
		}
	}
	return len(names) > 0
}

// address parses a name below in-addr.arpa or ip6.arpa. It returns the address, and how many bits the name specifies.
// exact is false if there are other labels in front.
func address(name *wire.Name) (ip netip.Addr, bits int, exact, ok bool) {
	n := name.Labels() - 2
	if n < 1 || string(name.Label(n+1)) != "arpa" {
		return ip, 0, false, false
	}
	switch string(name.Label(n)) {
	case "in-addr":
		var b [4]byte
		for ; bits < 32 && n > 0; bits += 8 {
			label := string(name.Label(n - 1))
			octet, err := strconv.ParseUint(label, 10, 8)
			if err != nil || len(label) > 1 && label[0] == '0' {
				break
			}
			b[bits/8] = byte(octet)
			n--
		}
		return netip.AddrFrom4(b), bits, n == 0, true
	case "ip6":
		var b [16]byte
		for ; bits < 128 && n > 0; bits += 4 {
			label := string(name.Label(n - 1))
			digit, err := strconv.ParseUint(label, 16, 8)
			if err != nil || len(label) != 1 {
				break
			}
			b[bits/8] |= byte(digit) << (4 - bits%8)
			n--
		}
		return netip.AddrFrom16(b), bits, n == 0, true
	}
	return ip, 0, false, false
}
