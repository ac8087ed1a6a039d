package zone

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"

	"clusterctl/daemons/dns/wire"
)

// Result is what became of a question.
type Result struct {
	Foreign bool   // not the cluster's: ask others. Nothing was answered
	NoName  bool   // the name does not exist; otherwise it does, perhaps without such records
	Alias   []byte // the name that the last record leads to, as on the network
	AliasAt int    // where that name is in the answer
	Apex    int    // first label of the zone that the name is in
}

// question is one that is being answered.
type question struct {
	*Zone
	name  *wire.Name
	kind  uint16
	owner int // where the name is in the answer
	a     *wire.Answer
}

// Answer adds the records that a name has of a type. The name is in the answer already, at owner.
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

// inside answers for the cluster's domain; n is the number of labels before it.
func (q question) inside(n int) Result {
	if n == 0 {
		q.apex()
		return Result{}
	}
	switch last := string(q.name.Label(n - 1)); {
	case last == "svc" && n == 1, last == "pod" && n == 1, last == "dns" && n == 1:
		return Result{} // names are below
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

// version is that of the specification that is kept, as a TXT record has it.
const version = "\x051.1.0"

// apex answers for a zone's own name.
func (q question) apex() {
	if q.wants(wire.TypeSOA) {
		q.add(wire.TypeSOA, q.soa)
	}
	if q.wants(wire.TypeNS) {
		q.add(wire.TypeNS, q.ns)
	}
}

// Deny adds the record that says for how long "no such name" or "no such records" may be kept. The question's name is
// in the zone that begins with its label apex.
func (z *Zone) Deny(a *wire.Answer, asked *wire.Name, apex int) {
	a.Add(wire.Authority, wire.Asked+asked.Start(apex), wire.TypeSOA, denied, z.soa)
}

// below answers for the n labels before svc or pod, of which the last is a namespace.
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
		// _tcp and the like exist when a named port below does.
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

// additional is for how many targets of SRV records the addresses are given with them: those of more rarely have room.
const additional = 16

// ports adds the SRV records of ports, and the addresses of the names in them.
func (q question) ports(s *Service, meant func(port) bool) {
	count := 0
	for range s.targets(meant) {
		count++
	}
	weight := max(100/max(count, 1), 1)
	fixed := []byte{0, 0, byte(weight >> 8), byte(weight)}
	var names []int // where the targets' are in the answer
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

// addresses adds those that are asked for.
func (q question) addresses(v4, v6 []byte) {
	if q.wants(wire.TypeA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeA, v4)
	}
	if q.wants(wire.TypeAAAA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeAAAA, v6)
	}
}

// reverse answers for the names of addresses. Of those in the networks of pods and services, nobody else knows names;
// of others, only those that endpoints have are the cluster's.
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
		// A zone begins where a label does: that of 10.96.0.0/12 is sixteen of two labels.
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

// pointers adds the names of an address.
func (q question) pointers(ip netip.Addr) bool {
	names := q.namesOf(ip)
	if q.wants(wire.TypePTR) {
		for _, n := range names {
			q.add(wire.TypePTR, n)
		}
	}
	return len(names) > 0
}

// address reads a name below in-addr.arpa or ip6.arpa: the address that it begins with, and how many bits of it are
// said. It is exact when nothing else is said.
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
