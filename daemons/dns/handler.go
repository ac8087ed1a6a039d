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
	zone             *zone.Zone
	resolver         *upstream.Resolver
	clients          *clients
	metrics          *metrics
	log              *slog.Logger
	isLoggingQueries bool // log each query
}

// workspace is the reusable memory for answering one query.
type workspace struct {
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
	source  source // the source of the answer
}

// maxAliases limits the length of a chain of aliases. A longer one is probably a loop.
const maxAliases = 8

// respond answers a message in the memory of out. It returns no reply if the message is not a query, or if the client
// may be a machine that is not known yet. If other servers must be asked and wait is not set, it returns later. The
// caller then calls it again for the same message with wait set.
func (h *handler) respond(
	ctx context.Context,
	w *workspace,
	out, message []byte,
	c sender,
	wait bool,
	start time.Time,
) (reply []byte, later bool) {
	defer func() {
		if p := recover(); p != nil {
			h.metrics.panics.Inc()
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
		switch h.clients.verdict(c.addr.Addr()) {
		case clientRefused:
			code = wire.Refused
			h.metrics.refusedClients.Inc()
		case clientUnknown:
			h.metrics.refusedClients.Inc()
			return nil, false
		}
	}
	if code == wire.Success {
		code = refusalCode(q)
	}
	if code != wire.Success {
		w.outcome.code = code
		reply = a.Finish(code, false)
	} else if reply, later = h.answer(ctx, w, out, c, wait); later {
		return nil, true
	}
	h.metrics.observe(w, c, len(reply), start)
	if h.isLoggingQueries {
		h.log.Info("query", "client", c.addr, "tcp", c.tcp, "type", dns.Type(q.Type).String(), "name", q.Name.String(),
			"rcode", codeName(w.outcome.code), "bytes", len(reply), "took", time.Since(start))
	}
	return reply, false
}

// refusalCode returns the response code for a query that is not supported, or Success.
func refusalCode(q *wire.Query) int {
	switch {
	case q.Class != wire.ClassIN && q.Class != wire.ClassANY, q.Type == wire.TypeAXFR, q.Type == wire.TypeIXFR:
		return wire.Refused
	case q.Type == wire.TypeMAILA, q.Type == wire.TypeMAILB:
		return wire.NotImplemented
	}
	return wire.Success
}

// answer answers from the zone, or forwards the query.
func (h *handler) answer(ctx context.Context, w *workspace, out []byte, c sender, wait bool) (reply []byte,
	later bool) {
	q, a := &w.query, &w.answer
	r := h.zone.Answer(a, &q.Name, q.Type, wire.QuestionOffset)
	if r.OutOfZone {
		return h.forward(ctx, w, out, c, wait)
	}
	w.outcome.cluster, w.outcome.source = true, sourceCluster
	apex, before := r.ApexLabel, 0
	for hops := 0; r.Alias != nil; hops++ {
		if _, err := w.name.Parse(r.Alias); err != nil || hops == maxAliases {
			a.Restart()
			return h.finish(w, wire.ServerFailure), false
		}
		before = a.Count(wire.Answers)
		at := r.AliasAt
		if a.Truncated() {
			break
		}
		if r = h.zone.Answer(a, &w.name, q.Type, at); r.OutOfZone {
			code, later := h.addAlias(ctx, w, wait)
			if later {
				return nil, true
			}
			return h.finish(w, code), false
		}
	}
	code := wire.Success
	if r.NoName {
		code = wire.NameError
	}
	if a.Count(wire.Answers) == before && !a.Truncated() {
		h.zone.AddSOA(a, &q.Name, apex)
	}
	return h.finish(w, code), false
}

func (h *handler) finish(w *workspace, code int) []byte {
	w.outcome.code = code
	return w.answer.Finish(code, true)
}

// forward answers with the response of other servers.
func (h *handler) forward(ctx context.Context, w *workspace, out []byte, c sender, wait bool) (reply []byte,
	later bool) {
	q := &w.query
	w.outcome.source = sourceForward
	if h.resolver.IsLoopQuery(&q.Name) {
		w.outcome.code = wire.Refused
		return w.answer.Finish(wire.Refused, false), false
	}
	found, err, later := h.lookup(ctx, w, q, wait)
	if later {
		return nil, true
	}
	if err == nil {
		w.outcome.code = found.Answer().Code()
		return found.WriteReply(out, q, q.Limit(c.tcp), time.Now()), false
	}
	h.log.Debug("ask other servers", "name", q.Name.String(), "error", err)
	w.outcome.code = wire.ServerFailure
	if err == upstream.ErrNoServer && strings.HasSuffix(q.Name.String(), ".arpa.") {
		w.outcome.code = wire.NameError // the reverse name of an address that no server can know is not a failure
	}
	return w.answer.Finish(w.outcome.code, false), false
}

// lookup returns the answer of another server, preferably from the cache.
func (h *handler) lookup(
	ctx context.Context,
	w *workspace,
	q *wire.Query,
	wait bool,
) (found *upstream.Response, err error, later bool) {
	w.key = upstream.AppendKey(w.key[:0], q)
	if !wait {
		if found = h.resolver.Cached(w.key, time.Now()); found == nil {
			return nil, nil, true
		}
		w.outcome.source = sourceCache
		return found, nil, false
	}
	found, err = h.resolver.Ask(ctx, w.key, q)
	return found, err, false
}

// addAlias adds the answer of other servers about an alias target.
func (h *handler) addAlias(ctx context.Context, w *workspace, wait bool) (code int, later bool) {
	w.aliased = w.query
	w.aliased.Name = w.name
	found, err, later := h.lookup(ctx, w, &w.aliased, wait)
	if later {
		return 0, true
	}
	m := new(dns.Msg)
	if err == nil {
		// the times to live are reduced by the age of the answer
		err = m.Unpack(found.WriteReply(nil, &wire.Query{RawName: w.name.From(0)}, wire.MaxSize, time.Now()))
	}
	if err != nil {
		h.log.Debug("ask other servers", "name", w.name.String(), "error", err)
		return wire.ServerFailure, false
	}
	w.add(m)
	return m.Rcode, false
}

// add adds the records of another server's answer, including the SOA record of a negative answer.
func (w *workspace) add(m *dns.Msg) {
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
