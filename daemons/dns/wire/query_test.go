package wire

import (
	"testing"

	"github.com/miekg/dns"
)

func packMessage(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func question(name string) *dns.Msg { return new(dns.Msg).SetQuestion(name, dns.TypeA) }

func TestParseReadsTheQuestionAndTheOptions(t *testing.T) {
	m := question("Web.Default.svc.cluster.local.").SetEdns0(4096, true)
	m.CheckingDisabled = true
	var q Query
	code, ok := q.Parse(packMessage(t, m))
	if !ok || code != Success || q.ID != m.Id || q.Type != TypeA || q.Class != ClassIN || !q.EDNS || !q.DO ||
		q.Size != 4096 ||
		!q.CheckingDisabled() ||
		!q.RecursionDesired() {
		t.Errorf("code %d, %+v", code, q)
	}
	if q.Name.String() != "web.default.svc.cluster.local." || string(q.RawName[1:4]) != "Web" ||
		q.Limit(false) != UDPSize ||
		q.Limit(true) != MaxSize {
		t.Errorf("%s, %q", q.Name.String(), q.RawName)
	}
	if code, ok := q.Parse(packMessage(t, question("a."))); !ok || code != Success || q.EDNS ||
		q.Limit(false) != PlainSize {
		t.Errorf("the query before is still there: %+v", q)
	}
}

func TestParseReturnsTheCodeOfTheError(t *testing.T) {
	plain := packMessage(t, question("example.org."))
	change := func(f func([]byte)) []byte {
		b := append([]byte(nil), plain...)
		f(b)
		return b
	}
	option := func(change func(*dns.OPT)) []byte {
		m := question("example.org.").SetEdns0(1232, false)
		change(m.Extra[0].(*dns.OPT))
		return packMessage(t, m)
	}
	twice := question("example.org.").SetEdns0(1232, false)
	twice.Extra = append(twice.Extra, twice.Extra[0])
	for _, c := range []struct {
		name    string
		message []byte
		code    int
		ok      bool
	}{
		{"a query", plain, Success, true},
		{"nothing", nil, 0, false},
		{"less than a header", plain[:11], 0, false},
		{"an answer", change(func(b []byte) { b[2] |= 0x80 }), 0, false},
		{"an update", change(func(b []byte) { b[2] |= 5 << 3 }), NotImplemented, true},
		{"no question", change(func(b []byte) { b[5] = 0 }), FormatError, true},
		{"two questions", change(func(b []byte) { b[5] = 2 }), FormatError, true},
		{"a name without an end", plain[:16], FormatError, true},
		{"a compressed name", change(func(b []byte) { b[12] = 0xc0 }), FormatError, true},
		{"a label of a reserved type", change(func(b []byte) { b[12] = 0x47 }), FormatError, true},
		{"no type", plain[:len(plain)-4], FormatError, true},
		{"records that are missing", change(func(b []byte) { b[11] = 1 }), FormatError, true},
		{"two records of EDNS", packMessage(t, twice), FormatError, true},
		{"EDNS of a later version", option(func(o *dns.OPT) { o.SetVersion(1) }), BadVersion, true},
		{"options that nobody knows",
			option(func(o *dns.OPT) { o.Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")}} }),
			Success, true},
		{"EDNS as the question", packMessage(t, new(dns.Msg).SetQuestion(".", dns.TypeOPT)), FormatError, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q Query
			if code, ok := q.Parse(c.message); ok != c.ok || ok && code != c.code {
				t.Errorf("code %d, answered: %v", code, ok)
			}
		})
	}
}

func TestOptionsOfTheClientAreNotReturned(t *testing.T) {
	m := question("example.org.").SetEdns0(4096, true)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")}}
	for _, code := range []int{Success, BadVersion} {
		var q Query
		q.Parse(packMessage(t, m))
		var a Answer
		a.Start(nil, &q, q.Limit(false))
		var reply dns.Msg
		if err := reply.Unpack(a.Finish(code, false)); err != nil {
			t.Fatal(err)
		}
		if opt := reply.IsEdns0(); opt == nil || len(opt.Option) > 0 || !opt.Do() || opt.UDPSize() != UDPSize ||
			opt.Version() != 0 ||
			reply.Rcode != code {
			t.Errorf("got %v, code %d", opt, reply.Rcode)
		}
	}
}

func TestStoredAnswerIsReusedForTheSameQuestion(t *testing.T) {
	m := question("example.org.")
	m.Response, m.AuthenticatedData, m.Compress = true, true, true
	for _, text := range []string{"example.org. 60 IN CNAME www.example.org.", "www.example.org. 50 IN A " +
		"192.0.2.1", "www.example.org. 50 IN A 192.0.2.2", "www.example.org. 50 IN A 192.0.2.3"} {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	s, err := NewStored(packMessage(t, m))
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]int{}
	for i := range 300 {
		msg := question("eXample.ORG.")
		msg.AuthenticatedData = i%2 == 0
		var q Query
		q.Parse(packMessage(t, msg))
		var reply dns.Msg
		if err := reply.Unpack(s.WriteReply(nil, &q, 512, func(ttl uint32) uint32 { return ttl - 10 })); err != nil {
			t.Fatal(err)
		}
		if reply.Id != msg.Id || reply.Question[0].Name != "eXample.ORG." || len(reply.Answer) != 4 ||
			reply.Answer[0].Header().Ttl != 50 || reply.Answer[3].Header().Ttl != 40 ||
			reply.AuthenticatedData != msg.AuthenticatedData ||
			!reply.RecursionAvailable ||
			reply.Truncated ||
			reply.Answer[0].Header().Rrtype != dns.TypeCNAME {
			t.Fatalf("got %v", &reply)
		}
		first[reply.Answer[1].(*dns.A).A.String()]++
	}
	if len(first) != 3 || first["192.0.2.1"] < 50 {
		t.Errorf("first came %v", first)
	}
	var q Query
	q.Parse(packMessage(t, question("example.org.").SetEdns0(512, false)))
	var reply dns.Msg
	if err := reply.Unpack(s.WriteReply(nil, &q, len(packMessage(t, m))-6,
		func(ttl uint32) uint32 { return ttl })); err != nil ||
		!reply.Truncated ||
		len(reply.Answer) != 2 ||
		reply.IsEdns0() == nil {
		t.Errorf("without room: %v, %v", err, &reply)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(packMessage(f, question("example.org.").SetEdns0(1232, true)))
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Query
		code, ok := q.Parse(b)
		if !ok {
			return
		}
		var a Answer
		a.Start(nil, &q, q.Limit(false))
		out := a.Finish(code, false)
		if err := new(dns.Msg).Unpack(out); err != nil {
			t.Fatalf("the refusal %x cannot be read: %v", out, err)
		}
	})
}

func FuzzStoredAnswer(f *testing.F) {
	m := question("example.org.").SetEdns0(1232, true)
	m.Answer = []dns.RR{
		&dns.A{Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeA, Class: 1, Ttl: 5}, A: []byte{1, 2, 3, 4}},
	}
	f.Add(packMessage(f, m), 60)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		s, err := NewStored(b)
		if err != nil {
			return
		}
		var q Query
		if code, ok := q.Parse(b); !ok || code != Success {
			return
		}
		limit = max(limit, PlainSize)
		if out := s.WriteReply(nil, &q, limit, func(ttl uint32) uint32 { return ttl }); len(out) > limit {
			t.Fatalf("%d bytes of %d", len(out), limit)
		}
	})
}
