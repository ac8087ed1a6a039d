// Package walk implements the two ends of the matrix of packets. A client sends questions to many addresses by many
// protocols at the same time and reports the outcomes. Servers answer with their own name and the client's address. The
// matrix decides which outcomes are correct.
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
	To       string // host:port; Names resolves a host name
	Names    string // host:port of a name server; empty: those of resolv.conf
	Host     string // of HTTP and HTTPS: the Host header and the SNI
	Wait     time.Duration
	Tries    int // number of attempts; 0: one
	Ports    int // the first of PortsOfAsk source ports for UDP; 0: any
}

// PortsOfAsk is the number of source ports of a question.
const PortsOfAsk = 9000

// Answer is the outcome of an Ask.
type Answer struct {
	ID      string
	Outcome string   // of all attempts; if they differ, of the first that was not Reached
	Servers []string // names of the servers that answered, sorted
	Clients []string // client addresses that the servers saw, sorted
	Detail  string   // error text of the system
	Took    time.Duration
}

// Outcomes of an Ask. HTTP can also have the outcome of its status: "status 404".
const (
	Reached = "reached"
	Refused = "refused"
	Dropped = "dropped"
	NoRoute = "no way there" // there is no route, or no host has the address
	NoName  = "no such name"
	// Forbidden means refused by the client's own machine, which for UDP does not tell refusing from dropping
	Forbidden    = "forbidden"
	ClosedEarly  = "ended"  // an accepted connection ended without data
	outcomeError = "broken" // another error
)

// maxQuestions is the maximum number of open questions.
const maxQuestions = 64

// Run reads questions, each a line of JSON, and writes answers in the order in which they arrive.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	encoder, open := json.NewEncoder(out), make(chan struct{}, maxQuestions)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var ask Ask
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		open <- struct{}{}
		wg.Go(func() {
			answer := ask.answer(ctx)
			<-open
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, encoder.Encode(answer))
		})
	}
	wg.Wait()
	return cmp.Or(lines.Err(), failed)
}

// reply is the answer to one attempt.
type reply struct{ server, client string }

func (a Ask) answer(ctx context.Context) Answer {
	start := time.Now()
	reached := Answer{ID: a.ID, Outcome: Reached}
	addresses, err := a.addresses(ctx)
	for i := range max(a.Tries, 1) {
		var got reply
		if err == nil {
			got, err = a.askOnce(ctx, addresses[i%len(addresses)])
		}
		if err != nil {
			reached.Outcome, reached.Detail = outcomeOf(err), err.Error()
			break
		}
		reached.Servers, reached.Clients = append(reached.Servers, got.server), append(reached.Clients, got.client)
	}
	slices.Sort(reached.Servers)
	slices.Sort(reached.Clients)
	reached.Servers, reached.Clients, reached.Took = slices.Compact(reached.Servers), slices.Compact(reached.Clients),
		time.Since(start)
	return reached
}

// addresses returns the addresses of a question's host, sorted. With as many attempts as addresses, each address is
// asked once.
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

func (a Ask) askOnce(ctx context.Context, to netip.AddrPort) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Wait)
	defer cancel()
	switch a.Protocol {
	case "TCP", "UDP":
		return a.askPlain(ctx, to)
	case "SCTP":
		return askSCTP(a.Wait, to)
	case "HTTP", "HTTPS":
		return a.askHTTP(ctx, to)
	}
	return reply{}, fmt.Errorf("no protocol is called %q", a.Protocol)
}

// statusError is the error of an HTTP answer with another status than OK.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("status %d", int(s)) }

func outcomeOf(err error) string {
	var name *net.DNSError
	var timeout net.Error
	var code statusError
	switch {
	case errors.As(err, &code):
		return code.Error()
	case errors.As(err, &name):
		return NoName
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF):
		return ClosedEarly
	case errors.Is(err, syscall.EPERM):
		return Forbidden
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return NoRoute
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Dropped
	}
	return outcomeError
}
