package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// askTime is how long one other server has to answer before the next is asked.
const askTime = 2 * time.Second

// maxAsking is how many questions to other servers may be open at once; more are
// refused, so that a flood of them does not take the cluster's own names down.
const maxAsking = 1000

// forwarder asks other servers, the one that answered last first.
type forwarder struct {
	servers []string
	first   atomic.Int64
	slots   chan struct{}
	cache   *answers
}

func newForwarder(servers []string, cache *answers) *forwarder {
	return &forwarder{servers: servers, slots: make(chan struct{}, maxAsking), cache: cache}
}

// upstream returns the servers to ask, as host:port: those given, or the machine's
// own. This server itself is left out.
func upstream(given []string, resolv string, self func(net.IP) bool) ([]string, error) {
	list := given
	if len(list) == 0 {
		conf, err := dns.ClientConfigFromFile(resolv)
		if err != nil {
			return nil, fmt.Errorf("read the machine's name servers: %w", err)
		}
		list = conf.Servers
	}
	var servers []string
	for _, s := range list {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), "53"
		}
		ip := net.ParseIP(host)
		if ip == nil {
			return nil, fmt.Errorf("upstream server %q is not an IP address", s)
		}
		if len(given) == 0 && self(ip) {
			continue
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	return servers, nil
}

var errNobody = errors.New("there is no other server to ask")

// ask returns another server's answer.
func (f *forwarder) ask(ctx context.Context, m *dns.Msg, tcp bool) (*dns.Msg, error) {
	if len(f.servers) == 0 {
		return nil, errNobody
	}
	q := question{strings.ToLower(m.Question[0].Name), m.Question[0].Qtype, m.Question[0].Qclass, false}
	if opt := m.IsEdns0(); opt != nil {
		q.do = opt.Do()
	}
	if msg := f.cache.get(q); msg != nil {
		return msg, nil
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return nil, errors.New("too many questions to other servers are open")
	}
	var failures []error
	start := int(f.first.Load())
	for i := range f.servers {
		at := (start + i) % len(f.servers)
		msg, err := exchange(ctx, m, f.servers[at], tcp)
		if err == nil && msg.Rcode == dns.RcodeServerFailure && i+1 < len(f.servers) {
			err = errors.New("it failed")
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", f.servers[at], err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		f.first.Store(int64(at))
		f.cache.put(q, msg)
		return msg, nil
	}
	return nil, fmt.Errorf("ask other servers: %w", errors.Join(failures...))
}

func exchange(ctx context.Context, m *dns.Msg, server string, tcp bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	network := "udp"
	if tcp {
		network = "tcp"
	}
	out := m.Copy()
	out.Id = dns.Id()
	msg, _, err := (&dns.Client{Net: network, Timeout: askTime, UDPSize: dns.DefaultMsgSize}).ExchangeContext(ctx, out, server)
	if err == nil && msg.Truncated && !tcp {
		return exchange(ctx, m, server, true)
	}
	return msg, err
}
