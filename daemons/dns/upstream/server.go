package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/wire"
)

// maxFailures is the number of consecutive failures after which a server is skipped until it responds to a probe.
const maxFailures = 2

// serverTimeout limits a query to one server, before the next is asked.
const serverTimeout = 2 * time.Second

// server is another name server.
type server struct {
	addr   string
	isLoop atomic.Bool // it forwards queries back to this server

	mu         sync.Mutex
	failures   int
	probeAt    time.Time     // time of the next probe
	probePause time.Duration // delay of the probe after that
}

// minProbePause and maxProbePause are the first and longest delay between probes of a failed server. The delay doubles.
const (
	minProbePause = 500 * time.Millisecond
	maxProbePause = 30 * time.Second
)

func (s *server) isWorking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures < maxFailures
}

// recordSuccess records that the server responded.
func (s *server) recordSuccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.probePause = 0, 0
}

// recordFailure records that the server did not respond. It reports whether probing must start.
func (s *server) recordFailure(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	if s.probePause > 0 {
		return false
	}
	s.probePause, s.probeAt = minProbePause, now.Add(minProbePause)
	return true
}

// nextProbe returns when to probe the server, or the zero time if it need not be probed. If the probe is due now, due
// schedules the next one.
func (s *server) nextProbe(now time.Time) (at time.Time, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probePause == 0 {
		return time.Time{}, false
	}
	if now.Before(s.probeAt) {
		return s.probeAt, false
	}
	s.probePause = min(2*s.probePause, maxProbePause)
	s.probeAt = now.Add(s.probePause)
	return s.probeAt, true
}

// pool holds the servers for some names.
type pool struct {
	servers   []*server
	policy    string
	nextIndex atomic.Uint32
}

// order returns the servers in the order in which to ask them, working servers first. It leaves out servers that
// forward queries back to this one.
func (p *pool) order() []*server {
	list := slices.DeleteFunc(slices.Clone(p.servers), func(s *server) bool { return s.isLoop.Load() })
	switch p.policy {
	case "round_robin":
		if n := len(list); n > 0 {
			at := int(p.nextIndex.Add(1)-1) % n
			list = slices.Concat(list[at:], list[:at])
		}
	case "sequential":
	default:
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	slices.SortStableFunc(list, func(a, b *server) int {
		switch aWell, bWell := a.isWorking(), b.isWorking(); {
		case aWell && !bWell:
			return -1
		case bWell && !aWell:
			return 1
		}
		return 0
	})
	return list
}

// exchange queries one server over UDP, and over TCP if the response is truncated. It repeats the query without EDNS if
// the server does not support it.
func (s *server) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	reply, err := s.ask(ctx, "udp", m)
	if err == nil && reply.Truncated {
		reply, err = s.ask(ctx, "tcp", m)
	}
	if err == nil && m.IsEdns0() != nil && reply.IsEdns0() == nil &&
		(reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented) {
		plain := m.Copy()
		plain.Extra = nil
		return s.exchange(ctx, plain)
	}
	return reply, err
}

// ask sends a query from a random port with a random ID. It only accepts a response that matches both and the question.
func (s *server) ask(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
	out := m.Copy()
	out.Id = uint16(rand.Uint32())
	packed, err := out.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack the question: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, s.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	}
	if _, err := conn.Write(packed); err != nil {
		return nil, err
	}
	buf := make([]byte, wire.UDPSize)
	for {
		n := 0
		if network == "tcp" {
			buf, err = readMessage(conn)
			n = len(buf)
		} else {
			n, err = conn.Read(buf)
		}
		if err != nil {
			return nil, err
		}
		reply := new(dns.Msg)
		if err := reply.Unpack(buf[:n]); err == nil && isReplyTo(out, reply) {
			return reply, nil
		} else if network == "tcp" {
			return nil, errors.New("the answer is malformed, or to another question")
		}
	}
}

func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// isReplyTo reports whether a message is the response to a query. Error responses may omit the question.
func isReplyTo(msg, reply *dns.Msg) bool {
	if !reply.Response || reply.Id != msg.Id || reply.Opcode != msg.Opcode {
		return false
	}
	if len(reply.Question) == 0 {
		return reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError
	}
	a, b := msg.Question[0], reply.Question[0]
	return len(reply.Question) == 1 && a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}
