package dns

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// Clients that take the first address spread over all of a headless service's.
func TestAddressesComeInAnotherOrderEachTimeS30(t *testing.T) {
	q := dns.Question{Name: "web.shop.svc.cluster.local.", Qtype: dns.TypeA}
	first := map[string]int{}
	for range 200 {
		records := append([]dns.RR{&dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: "elsewhere."}},
			addresses(q, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"))...)
		shuffle(records)
		if records[0].Header().Rrtype != dns.TypeCNAME {
			t.Fatal("an alias must stay before what it leads to")
		}
		first[records[1].(*dns.A).A.String()]++
	}
	if len(first) != 3 {
		t.Errorf("first of 200 answers: %v", first)
	}
	shuffle(nil)
}
