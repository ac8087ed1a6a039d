package dns

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/upstream"
	"clusterctl/daemons/dns/wire"
	"clusterctl/daemons/dns/zone"
)

// handler answers queries over any transport.
type handler struct {
	zone     *zone.Zone
	resolver *upstream.Resolver
	clients  *clients
	told     *told
	log      *slog.Logger
	queries  bool // log each query
}

// work is the reusable memory for answering one query.
type work struct {
	query   wire.Query
	answer  wire.Answer
	name    wire.Name  // target name of an alias
	aliased wire.Query // query for the target name
	key     []byte
	outcome outcome
}

// sender is the client of a query.
type sender struct {
	addr netip.AddrPort
	tcp  bool
}

// outcome holds the properties of an answer for metrics.
type outcome struct {
	code    int
	cluster bool   // the name is in the cluster's domain
	by      source // the source of the answer
}

// maxAliases limits the length of a chain of aliases. A longer one is probably a loop.
const maxAliases = 8

// respond answers a message in the memory of out. It returns no reply if the message is not a query, or if the client
// may be a machine that is not known yet. If other servers must be asked and wait is not set, it returns later. The
// caller then calls it again for the same message with wait set.
func (h *handler) respond(
	ctx context.Context,
	w *work,
	out, message []byte,
	c sender,
	wait bool,
	began time.Time,
) (reply []byte, later bool) {
	defer func() {
		if p := recover(); p != nil {
			h.told.panics.Inc()
			h.log.Error("answer a query", "client", c.addr, "panic", p, "stack", string(debug.Stack()))
			reply, later = nil, false
		}
	}()
	q, a := &w.query, &w.answer
	w.outcome = outcome{}
	code, ok := q.Parse(message)
	if !ok {
		return nil, false
	}
	a.Start(out, q, q.Limit(c.tcp))
	if code == wire.Success {
		switch h.clients.of(c.addr.Addr()) {
		case stranger:
			code = wire.Refused
			h.told.strangers.Inc()
		case unknown:
			h.told.strangers.Inc()
			return nil, false
		}
	}
	if code == wire.Success {
		code = refusal(q)
	}
	if code != wire.Success {
		w.outcome.code = code
		reply = a.Done(code, false)
	} else if reply, later = h.answer(ctx, w, out, c, wait); later {
		return nil, true
	}
	h.told.observe(w, c, len(reply), began)
	if h.queries {
		h.log.Info("query", "client", c.addr, "tcp", c.tcp, "type", dns.Type(q.Type).String(), "name", q.Name.String(),
			"rcode", codeName(w.outcome.code), "bytes", len(reply), "took", time.Since(began))
	}
	return reply, false
}

// refusal returns the response code for a query that is not supported, or Success.
func refusal(q *wire.Query) int {
	switch {
	case q.Class != wire.ClassIN && q.Class != wire.ClassANY, q.Type == wire.TypeAXFR, q.Type == wire.TypeIXFR:
		return wire.Refused
	case q.Type == wire.TypeMAILA, q.Type == wire.TypeMAILB:
		return wire.NotImplemented
	}
	return wire.Success
}

// answer answers from the zone, or forwards the query.
func (h *handler) answer(ctx context.Context, w *work, out []byte, c sender, wait bool) (reply []byte, later bool) {
	q, a := &w.query, &w.answer
	r := h.zone.Answer(a, &q.Name, q.Type, wire.Asked)
	if r.Foreign {
		return h.others(ctx, w, out, c, wait)
	}
	w.outcome.cluster, w.outcome.by = true, byCluster
	apex, before := r.Apex, 0
	for hops := 0; r.Alias != nil; hops++ {
		if _, err := w.name.Read(r.Alias); err != nil || hops == maxAliases {
			a.Restart()
			return h.done(w, wire.ServerFailure), false
		}
		before = a.Count(wire.Answers)
		at := r.AliasAt
		if a.Truncated() {
			break
		}
		if r = h.zone.Answer(a, &w.name, q.Type, at); r.Foreign {
			code, later := h.aliased(ctx, w, wait)
			if later {
				return nil, true
			}
			return h.done(w, code), false
		}
	}
	code := wire.Success
	if r.NoName {
		code = wire.NoName
	}
	if a.Count(wire.Answers) == before && !a.Truncated() {
		h.zone.Deny(a, &q.Name, apex)
	}
	return h.done(w, code), false
}

func (h *handler) done(w *work, code int) []byte {
	w.outcome.code = code
	return w.answer.Done(code, true)
}

// others answers with the response of other servers.
func (h *handler) others(ctx context.Context, w *work, out []byte, c sender, wait bool) (reply []byte, later bool) {
	q := &w.query
	w.outcome.by = byOthers
	if h.resolver.Looped(&q.Name) {
		w.outcome.code = wire.Refused
		return w.answer.Done(wire.Refused, false), false
	}
	found, err, later := h.find(ctx, w, q, wait)
	if later {
		return nil, true
	}
	if err == nil {
		w.outcome.code = found.Answer().Code()
		return found.Give(out, q, q.Limit(c.tcp), time.Now()), false
	}
	h.log.Debug("ask other servers", "name", q.Name.String(), "error", err)
	w.outcome.code = wire.ServerFailure
	if err == upstream.ErrNobody && strings.HasSuffix(q.Name.String(), ".arpa.") {
		w.outcome.code = wire.NoName // the reverse name of an address that no server can know is not a failure
	}
	return w.answer.Done(w.outcome.code, false), false
}

// find returns the answer of another server, preferably from the cache.
func (h *handler) find(
	ctx context.Context,
	w *work,
	q *wire.Query,
	wait bool,
) (found *upstream.Found, err error, later bool) {
	w.key = upstream.AppendKey(w.key[:0], q)
	if !wait {
		if found = h.resolver.Cached(w.key, time.Now()); found == nil {
			return nil, nil, true
		}
		w.outcome.by = byCache
		return found, nil, false
	}
	found, err = h.resolver.Ask(ctx, w.key, q)
	return found, err, false
}

// aliased adds the answer of other servers about an alias target.
func (h *handler) aliased(ctx context.Context, w *work, wait bool) (code int, later bool) {
	w.aliased = w.query
	w.aliased.Name = w.name
	found, err, later := h.find(ctx, w, &w.aliased, wait)
	if later {
		return 0, true
	}
	m := new(dns.Msg)
	if err == nil {
		// the times to live are reduced by the age of the answer
		err = m.Unpack(found.Give(nil, &wire.Query{Asked: w.name.From(0)}, wire.MaxSize, time.Now()))
	}
	if err != nil {
		h.log.Debug("ask other servers", "name", w.name.String(), "error", err)
		return wire.ServerFailure, false
	}
	w.add(m)
	return m.Rcode, false
}

// add adds the records of another server's answer, including the SOA record of a negative answer.
func (w *work) add(m *dns.Msg) {
	buf := make([]byte, wire.MaxSize)
	put := func(section wire.Section, rr dns.RR) bool {
		n, err := dns.PackRR(rr, buf, 0, nil, false)
		return err == nil && w.answer.AddPacked(section, buf[:n])
	}
	for _, rr := range m.Answer {
		if !put(wire.Answers, rr) {
			return
		}
	}
	for _, rr := range m.Ns {
		if _, negative := rr.(*dns.SOA); negative && !put(wire.Authority, rr) {
			return
		}
	}
}

func codeName(code int) string {
	if text, ok := dns.RcodeToString[code]; ok {
		return text
	}
	return "OTHER"
}
