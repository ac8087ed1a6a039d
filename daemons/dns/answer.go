package dns

import (
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Zone is what the server knows of the cluster. Its methods may be called from
// many goroutines at once.
type Zone interface {
	Service(Key) *Service
	HasNamespace(name string) bool
	// Reverse returns the full names that an address has in the cluster.
	Reverse(netip.Addr) []string
}

// Answer is what to reply to one question.
type Answer struct {
	Records []dns.RR
	Extra   []dns.RR
	NoName  bool   // the name does not exist; otherwise it does, perhaps without such records
	Alias   string // the name of another domain that the last record leads to
	Foreign bool   // not the cluster's: ask others
}

// ttl is how long answers may be kept, seconds. Services' addresses change rarely
// and headless ones often; it is upstream's figure for both.
const ttl = 30

// Resolve answers a question about the cluster. domain is the cluster's, with a
// final dot and in lower case.
func Resolve(z Zone, domain string, q dns.Question) Answer {
	name := strings.ToLower(q.Name)
	if ip, ok := reverse(name); ok {
		names := z.Reverse(ip)
		if len(names) == 0 {
			return Answer{Foreign: true}
		}
		var a Answer
		if q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY {
			for _, n := range names {
				a.Records = append(a.Records, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: n})
			}
		}
		return a
	}
	if name != domain && !strings.HasSuffix(name, "."+domain) {
		return Answer{Foreign: true}
	}
	rest := strings.TrimSuffix(strings.TrimSuffix(name, domain), ".")
	var labels []string
	if rest != "" {
		labels = strings.Split(rest, ".")
	}
	if len(labels) == 0 || len(labels) == 1 && (labels[0] == "svc" || labels[0] == "pod") {
		return Answer{} // exists, and has no addresses
	}
	if labels[0] == "dns-version" && len(labels) == 1 {
		if q.Qtype == dns.TypeTXT {
			return Answer{Records: []dns.RR{&dns.TXT{Hdr: header(q.Name, dns.TypeTXT), Txt: []string{"1.1.0"}}}}
		}
		return Answer{}
	}
	last := len(labels) - 1
	switch labels[last] {
	case "svc":
		return service(z, domain, q, labels[:last])
	case "pod":
		return podName(z, q, labels[:last])
	}
	return Answer{NoName: true}
}

// podName answers for address-as-name.namespace.pod.
func podName(z Zone, q dns.Question, labels []string) Answer {
	if !z.HasNamespace(labels[len(labels)-1]) || len(labels) > 2 {
		return Answer{NoName: true}
	}
	if len(labels) == 1 {
		return Answer{}
	}
	ip, ok := undashed(labels[0])
	if !ok {
		return Answer{NoName: true}
	}
	return Answer{Records: addresses(q, ip)}
}

// service answers for [_port._protocol.][endpoint.]service.namespace.svc.
func service(z Zone, domain string, q dns.Question, labels []string) Answer {
	namespace := labels[len(labels)-1]
	if len(labels) == 1 {
		return Answer{NoName: !z.HasNamespace(namespace)}
	}
	s := z.Service(Key{namespace, labels[len(labels)-2]})
	if s == nil {
		return Answer{NoName: true}
	}
	full := labels[len(labels)-2] + "." + namespace + ".svc." + domain
	below := labels[:len(labels)-2]
	switch {
	case s.External != "":
		if len(below) > 0 {
			return Answer{NoName: true}
		}
		return Answer{Records: []dns.RR{&dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: s.External}}, Alias: s.External}
	case len(below) == 0:
		return whole(s, full, q)
	case len(below) == 1 && !strings.HasPrefix(below[0], "_"):
		return endpoint(s, below[0], q)
	case len(below) == 2 && strings.HasPrefix(below[0], "_") && strings.HasPrefix(below[1], "_"):
		return ports(s, full, below[0][1:], below[1][1:], q)
	case len(below) == 1:
		// _tcp and the like exist when a port does.
		for _, p := range s.allPorts() {
			if "_"+p.Protocol == below[0] {
				return Answer{}
			}
		}
	}
	return Answer{NoName: true}
}

// whole answers for a service's own name.
func whole(s *Service, full string, q dns.Question) Answer {
	if q.Qtype == dns.TypeSRV {
		var a Answer
		for _, p := range s.Ports {
			more := srv(s, full, p, q)
			a.Records, a.Extra = append(a.Records, more.Records...), append(a.Extra, more.Extra...)
		}
		return a
	}
	if len(s.ClusterIPs) > 0 {
		return Answer{Records: addresses(q, s.ClusterIPs...)}
	}
	if len(s.Endpoints) == 0 {
		return Answer{NoName: true}
	}
	ips := make([]netip.Addr, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		ips = append(ips, e.Addr)
	}
	return Answer{Records: addresses(q, ips...)}
}

// endpoint answers for one endpoint of a headless service.
func endpoint(s *Service, host string, q dns.Question) Answer {
	var ips []netip.Addr
	for _, e := range s.Endpoints {
		if e.Host == host {
			ips = append(ips, e.Addr)
		}
	}
	if len(ips) == 0 {
		return Answer{NoName: true}
	}
	return Answer{Records: addresses(q, ips...)}
}

func (s *Service) allPorts() []Port {
	all := s.Ports
	for _, e := range s.Endpoints {
		all = append(all[:len(all):len(all)], e.Ports...)
	}
	return all
}

// ports answers for a named port of a service.
func ports(s *Service, full, name, proto string, q dns.Question) Answer {
	for _, p := range s.Ports {
		if p.Name != name || p.Protocol != proto || p.Name == "" {
			continue
		}
		if len(s.ClusterIPs) == 0 && len(s.Endpoints) == 0 {
			break
		}
		if q.Qtype != dns.TypeSRV && q.Qtype != dns.TypeANY {
			return Answer{}
		}
		return srv(s, full, p, q)
	}
	return Answer{NoName: true}
}

// srv returns where a port is served, with the addresses of the names in it.
func srv(s *Service, full string, p Port, q dns.Question) Answer {
	const whole = 100
	var a Answer
	if len(s.ClusterIPs) > 0 {
		a.Records = []dns.RR{&dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Weight: whole, Port: p.Number, Target: full}}
		for _, ip := range s.ClusterIPs {
			a.Extra = append(a.Extra, address(full, ip))
		}
		return a
	}
	type target struct {
		host string
		port uint16
	}
	seen := map[target]bool{}
	for _, e := range s.Endpoints {
		for _, ep := range e.Ports {
			if ep.Name != p.Name || ep.Protocol != p.Protocol {
				continue
			}
			host := e.Host + "." + full
			if t := (target{host, ep.Number}); !seen[t] {
				seen[t] = true
				a.Records = append(a.Records, &dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Port: ep.Number, Target: host})
			}
			a.Extra = append(a.Extra, address(host, e.Addr))
		}
	}
	for _, r := range a.Records {
		r.(*dns.SRV).Weight = uint16(max(whole/len(a.Records), 1))
	}
	return a
}

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

// addresses returns those of the given addresses that are asked for.
func addresses(q dns.Question, ips ...netip.Addr) []dns.RR {
	var records []dns.RR
	for _, ip := range ips {
		if want := q.Qtype; want == dns.TypeANY || want == dns.TypeA && ip.Is4() || want == dns.TypeAAAA && ip.Is6() {
			records = append(records, address(q.Name, ip))
		}
	}
	return records
}

func address(name string, ip netip.Addr) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: net.IP(ip.AsSlice())}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: net.IP(ip.AsSlice())}
}

// soa is the record that says how long "no such name" holds.
func soa(domain string, serial uint32) dns.RR {
	return &dns.SOA{Hdr: dns.RR_Header{Name: domain, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 5}, Ns: "ns.dns." + domain,
		Mbox: "hostmaster." + domain, Serial: serial, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: 5}
}

// reverse returns the address that a name below in-addr.arpa or ip6.arpa is of.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
			labels[i], labels[j] = labels[j], labels[i]
		}
		ip, err := netip.ParseAddr(strings.Join(labels, "."))
		return ip, err == nil && ip.Is4()
	}
	if rest, ok := strings.CutSuffix(name, ".ip6.arpa."); ok {
		digits := strings.Split(rest, ".")
		if len(digits) != 32 {
			return netip.Addr{}, false
		}
		var b strings.Builder
		for i := 31; i >= 0; i-- {
			b.WriteString(digits[i])
			if i%4 == 0 && i > 0 {
				b.WriteByte(':')
			}
		}
		ip, err := netip.ParseAddr(b.String())
		return ip, err == nil
	}
	return netip.Addr{}, false
}
