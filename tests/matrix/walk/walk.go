// Package walk has the two ends of the matrix of packets: a client that asks many addresses by many protocols at once
// and says what came of each, and servers that answer with their own name and the client's address. What has to come of
// it, it leaves to the matrix.
package walk

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Ask is a question of a walk.
type Ask struct {
	ID       string
	Protocol string // TCP, UDP, SCTP, HTTP or HTTPS
	Family   int    // 4 or 6
	To       string // host:port; a host that is a name is asked of Names
	Names    string // host:port of a name server; empty for those of resolv.conf
	Host     string // of HTTP and HTTPS: who is asked for, also by SNI
	Wait     time.Duration
	Tries    int // how often; 0 is once
	Ports    int // the first of the ports, PortsOfAsk of them, that UDP is sent from; 0 is any
}

// PortsOfAsk is how many ports there are for a question.
const PortsOfAsk = 9000

// Answer is what came of an Ask.
type Answer struct {
	ID      string
	Outcome string   // of all tries; where they differ, of the first that was not Reached
	Servers []string // who answered, sorted
	Clients []string // as whom the client was seen, sorted
	Detail  string   // what the system said
	Took    time.Duration
}

// What may come of an Ask. HTTP may have other statuses as well: "status 404".
const (
	Reached   = "reached"
	Refused   = "refused"
	Dropped   = "dropped"
	NoWay     = "no way there" // no route leads there, or nobody has the address
	NoName    = "no such name"
	Forbidden = "forbidden" // by its own machine, which tells a process that sends UDP no more of refusing and dropping
	Ended     = "ended"     // a connection that was taken ended without a word
	broken    = "broken"    // something else
)

// atOnce is how many questions are open at a time.
const atOnce = 64

// Run reads questions, a line of JSON each, and writes their answers in the order in which they come.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	encoder, open := json.NewEncoder(out), make(chan struct{}, atOnce)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var ask Ask
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		open <- struct{}{}
		wg.Go(func() {
			answer := ask.do(ctx)
			<-open
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, encoder.Encode(answer))
		})
	}
	wg.Wait()
	return cmp.Or(lines.Err(), failed)
}

// reply is what came of one try.
type reply struct{ server, client string }

func (a Ask) do(ctx context.Context) Answer {
	began := time.Now()
	is := Answer{ID: a.ID, Outcome: Reached}
	addresses, err := a.addresses(ctx)
	for i := range max(a.Tries, 1) {
		var got reply
		if err == nil {
			got, err = a.once(ctx, addresses[i%len(addresses)])
		}
		if err != nil {
			is.Outcome, is.Detail = outcome(err), err.Error()
			break
		}
		is.Servers, is.Clients = append(is.Servers, got.server), append(is.Clients, got.client)
	}
	slices.Sort(is.Servers)
	slices.Sort(is.Clients)
	is.Servers, is.Clients, is.Took = slices.Compact(is.Servers), slices.Compact(is.Clients), time.Since(began)
	return is
}

// addresses are those of the host of a question, sorted, so that as many tries as there are addresses ask each.
func (a Ask) addresses(ctx context.Context) (list []netip.AddrPort, err error) {
	if one, err := netip.ParseAddrPort(a.To); err == nil {
		return []netip.AddrPort{one}, nil
	}
	host, port, err := net.SplitHostPort(a.To)
	if err != nil {
		return nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	resolver := &net.Resolver{PreferGo: true}
	if a.Names != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, a.Names)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, fmt.Sprintf("ip%d", a.Family), host)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, netip.Addr.Compare)
	for _, ip := range found {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), uint16(number)))
	}
	return list, nil
}

func (a Ask) once(ctx context.Context, to netip.AddrPort) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Wait)
	defer cancel()
	switch a.Protocol {
	case "TCP", "UDP":
		return a.plain(ctx, to)
	case "SCTP":
		return sctp(a.Wait, to)
	case "HTTP", "HTTPS":
		return a.http(ctx, to)
	}
	return reply{}, fmt.Errorf("no protocol is called %q", a.Protocol)
}

// status is an answer of HTTP that is not OK.
type status int

func (s status) Error() string { return fmt.Sprintf("status %d", int(s)) }

func outcome(err error) string {
	var name *net.DNSError
	var timeout net.Error
	var code status
	switch {
	case errors.As(err, &code):
		return code.Error()
	case errors.As(err, &name):
		return NoName
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF):
		return Ended
	case errors.Is(err, syscall.EPERM):
		return Forbidden
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return NoWay
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Dropped
	}
	return broken
}
