package dns

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// handler answers questions.
type handler struct {
	zone     Zone
	domain   string
	forward  *forwarder
	log      *slog.Logger
	requests *prometheus.CounterVec
	started  time.Time
}

// ServeDNS implements dns.Handler.
func (h *handler) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	tcp := w.LocalAddr().Network() == "tcp"
	reply := h.reply(context.Background(), q, tcp)
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil {
		size = int(max(opt.UDPSize(), dns.MinMsgSize))
		if reply.IsEdns0() == nil {
			reply.SetEdns0(dns.DefaultMsgSize, opt.Do())
		}
	}
	if tcp {
		size = dns.MaxMsgSize
	}
	reply.Truncate(size)
	if err := w.WriteMsg(reply); err != nil {
		h.log.Debug("answer", "to", w.RemoteAddr(), "error", err)
	}
	h.requests.WithLabelValues(dns.RcodeToString[reply.Rcode]).Inc()
}

// reply works out the whole answer to a message.
func (h *handler) reply(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	reply := new(dns.Msg).SetReply(q)
	if q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 {
		reply.Rcode = dns.RcodeNotImplemented
		return reply
	}
	reply.RecursionAvailable = true
	a := Answer{Foreign: true}
	if q.Question[0].Qclass == dns.ClassINET {
		a = Resolve(h.zone, h.domain, q.Question[0])
	}
	if a.Foreign {
		return h.others(ctx, q, reply, tcp)
	}
	reply.Authoritative = true
	reply.Answer, reply.Extra = a.Records, a.Extra
	if a.Alias != "" && (q.Question[0].Qtype == dns.TypeA || q.Question[0].Qtype == dns.TypeAAAA) {
		h.follow(ctx, q, reply, a.Alias, tcp)
	}
	shuffle(reply.Answer)
	if a.NoName {
		reply.Rcode = dns.RcodeNameError
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{soa(h.domain, uint32(h.started.Unix()))}
	}
	return reply
}

// shuffle puts a name's addresses in another order each time, so that clients that take the
// first spread over all. Aliases stay before what they lead to.
func shuffle(records []dns.RR) {
	first := slices.IndexFunc(records, isAddress)
	if first < 0 || slices.ContainsFunc(records[first:], func(r dns.RR) bool { return !isAddress(r) }) {
		return
	}
	addresses := records[first:]
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
}

func isAddress(r dns.RR) bool {
	return r.Header().Rrtype == dns.TypeA || r.Header().Rrtype == dns.TypeAAAA
}

// others passes a question on to other servers. The reverse of private addresses
// that nobody knows is no such name, rather than a failure.
func (h *handler) others(ctx context.Context, q, reply *dns.Msg, tcp bool) *dns.Msg {
	msg, err := h.forward.ask(ctx, q, tcp)
	if err != nil {
		h.log.Debug("ask other servers", "name", q.Question[0].Name, "error", err)
		reply.Rcode = dns.RcodeServerFailure
		if len(h.forward.servers) == 0 && strings.HasSuffix(q.Question[0].Name, ".arpa.") {
			reply.Rcode = dns.RcodeNameError
		}
		return reply
	}
	msg.Id, msg.Question = q.Id, q.Question
	if q.IsEdns0() == nil {
		// The asker speaks the old protocol.
		for i, rr := range msg.Extra {
			if rr.Header().Rrtype == dns.TypeOPT {
				msg.Extra = append(msg.Extra[:i:i], msg.Extra[i+1:]...)
				break
			}
		}
	}
	return msg
}

// follow adds the addresses of the name that an alias leads to.
func (h *handler) follow(ctx context.Context, q, reply *dns.Msg, to string, tcp bool) {
	next := new(dns.Msg).SetQuestion(to, q.Question[0].Qtype)
	next.RecursionDesired = true
	local := Resolve(h.zone, h.domain, next.Question[0])
	if !local.Foreign {
		reply.Answer = append(reply.Answer, local.Records...)
		return
	}
	if msg, err := h.forward.ask(ctx, next, tcp); err == nil {
		reply.Answer = append(reply.Answer, msg.Answer...)
	}
}
