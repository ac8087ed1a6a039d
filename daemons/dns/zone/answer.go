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
	OutOfZone bool   // the name is outside of the zone and nothing was added: ask other servers
	NoName    bool   // the name does not exist; otherwise it exists, possibly without such records
	Alias     []byte // target name of the last record, in wire format
	AliasAt   int    // offset of that name in the answer
	ApexLabel int    // index of the first label of the name's zone
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
			q.addAddresses(host[0], host[1])
			return Result{}
		}
		return q.resolveReverse()
	}
	r := q.resolveName(apex)
	r.ApexLabel = apex
	return r
}

// resolveName answers for the cluster's domain. n is the number of labels in front of it.
func (q question) resolveName(n int) Result {
	if n == 0 {
		q.addApex()
		return Result{}
	}
	switch last := string(q.name.Label(n - 1)); {
	case last == "svc" && n == 1, last == "pod" && n == 1, last == "dns" && n == 1:
		return Result{} // an empty non-terminal: there are only names below it
	case last == "svc":
		return q.resolveBelow(n-1, q.resolveService)
	case last == "pod":
		return q.resolveBelow(n-1, q.resolvePod)
	case last == "dns" && n == 2 && string(q.name.Label(0)) == "ns":
		if s := q.lookupService([]byte(q.server)); s != nil {
			q.addAddresses(s.v4, s.v6)
		}
		return Result{}
	case last == "dns-version" && n == 1:
		if q.isRequested(wire.TypeTXT) {
			q.addRecord(wire.TypeTXT, []byte(schemaVersion))
		}
		return Result{}
	}
	return Result{NoName: true}
}

// schemaVersion is the version of the DNS specification, in the format of a TXT record.
const schemaVersion = "\x051.1.0"

// addApex answers for the name of the zone itself.
func (q question) addApex() {
	if q.isRequested(wire.TypeSOA) {
		q.addRecord(wire.TypeSOA, q.soa)
	}
	if q.isRequested(wire.TypeNS) {
		q.addRecord(wire.TypeNS, q.ns)
	}
}

// AddSOA adds the SOA record, which limits how long a negative answer may be cached. The zone starts at the question's
// label apex.
func (z *Zone) AddSOA(a *wire.Answer, name *wire.Name, apex int) {
	a.Add(wire.Authority, wire.QuestionOffset+name.Start(apex), wire.TypeSOA, negativeTTL, z.soa)
}

// resolveBelow answers for the n labels in front of svc or pod. The last of them is a namespace.
func (q question) resolveBelow(n int, answer func(n int) Result) Result {
	if n == 1 {
		return Result{NoName: !q.hasNamespace(q.name.Label(0))}
	}
	return answer(n)
}

// resolvePod answers for address-as-label.namespace.pod.
func (q question) resolvePod(n int) Result {
	ip, ok := parseAddressLabel(string(q.name.Label(0)))
	if n != 2 || !ok || !q.hasNamespace(q.name.Label(1)) {
		return Result{NoName: true}
	}
	v4, v6 := appendAddress(nil, nil, ip)
	q.addAddresses(v4, v6)
	return Result{}
}

// resolveService answers for [_port._protocol.][endpoint.]service.namespace.svc.
func (q question) resolveService(n int) Result {
	s := q.lookupService(q.name.Between(n-2, n))
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
		q.addAddresses(s.v4, s.v6)
		if q.isRequested(wire.TypeSRV) {
			q.addPorts(s, func(port) bool { return true })
		}
		return Result{}
	case below == 1 && q.name.Label(0)[0] != '_':
		if at, ok := s.hostIndex(string(q.name.Label(0))); ok {
			q.addAddresses(s.hosts[at].v4, s.hosts[at].v6)
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
		name, protocol, ok := q.name.Label(0)[1:], q.name.Label(1)[1:], false
		meant := func(p port) bool {
			return p.name != "" && p.name == string(name) && p.protocol == string(protocol)
		}
		for _, p := range s.ports {
			ok = ok || meant(p)
		}
		if ok && q.isRequested(wire.TypeSRV) {
			q.addPorts(s, meant)
		}
		return Result{NoName: !ok}
	}
	return Result{NoName: true}
}

// maxAdditional limits the targets of SRV records whose addresses are added, because more rarely fit.
const maxAdditional = 16

// addPorts adds the SRV records of the matching ports, and the addresses of their targets.
func (q question) addPorts(s *Service, meant func(port) bool) {
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
		if len(names) < maxAdditional {
			names = append(names, at+len(fixed)+portSize)
		}
	}
	var offsets []int
	for t := range s.targets(meant) {
		if len(names) == 0 {
			return
		}
		if !slices.Contains(offsets, t.host) {
			v4, v6 := s.v4, s.v6
			if t.host >= 0 {
				v4, v6 = s.hosts[t.host].v4, s.hosts[t.host].v6
			}
			q.a.Addresses(wire.Additional, names[0], q.ttl, wire.TypeA, v4)
			q.a.Addresses(wire.Additional, names[0], q.ttl, wire.TypeAAAA, v6)
			offsets = append(offsets, t.host)
		}
		names = names[1:]
	}
}

func (q question) isRequested(kind uint16) bool { return q.kind == kind || q.kind == wire.TypeANY }

func (q question) addRecord(kind uint16, data []byte) {
	q.a.Add(wire.Answers, q.owner, kind, q.ttl, data)
}

// addAddresses adds the addresses of the requested type.
func (q question) addAddresses(v4, v6 []byte) {
	if q.isRequested(wire.TypeA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeA, v4)
	}
	if q.isRequested(wire.TypeAAAA) {
		q.a.Addresses(wire.Answers, q.owner, q.ttl, wire.TypeAAAA, v6)
	}
}

// resolveReverse answers for reverse names. For the networks of pods and services, this server is authoritative. Of
// other addresses, it only knows those of endpoints.
func (q question) resolveReverse() Result {
	ip, bits, exact, ok := parseReverse(q.name)
	if !ok {
		return Result{OutOfZone: true}
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
		r := Result{ApexLabel: root - size}
		switch {
		case bits == size*step && r.ApexLabel == 0:
			q.addApex()
		case !exact:
			r.NoName = true
		case bits == ip.BitLen():
			r.NoName = !q.addPointers(ip)
		}
		return r
	}
	if !exact || bits != ip.BitLen() || !q.addPointers(ip) {
		return Result{OutOfZone: true}
	}
	return Result{ApexLabel: 0}
}

// addPointers adds the PTR records of an address, and reports whether it has a name.
func (q question) addPointers(ip netip.Addr) bool {
	names := q.namesOf(ip)
	if q.isRequested(wire.TypePTR) {
		for _, n := range names {
			q.addRecord(wire.TypePTR, n)
		}
	}
	return len(names) > 0
}

// parseReverse parses a name below in-addr.arpa or ip6.arpa. It returns the address, and how many bits the name
// specifies. exact is false if there are other labels in front.
func parseReverse(name *wire.Name) (ip netip.Addr, bits int, exact, ok bool) {
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
