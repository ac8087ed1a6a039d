package request

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/flow"
)

// Answer is the answer to a request while it is being built, and what the request holds until it is answered. It is an
// http.ResponseWriter. The copies of a request share its answer. The answer to a write of the server's own has no
// ResponseWriter, and drops warnings.
type Answer struct {
	Recorder
	warnings warnings
	// WebhookTime is how long webhooks took, in nanoseconds.
	WebhookTime atomic.Int64
	// IsAdmitted reports whether webhooks and policies have seen the object that was sent to a subresource.
	IsAdmitted bool

	Audit    *audit.Record   // for the audit log; nil if nothing is recorded
	Decision *audit.Decision // what the audit policy says of the request; nil without an audit log

	Metrics
	Seats
	onEnd        func()
	becomeStream func() // lifts the time limits of a request that becomes a stream; nil if it cannot become one
	isStream     bool   // whether it has become a stream
}

// Metrics is what the server's metrics know of a request.
type Metrics struct {
	IsAuthorized bool             // whether metrics may name the request's resource
	IsInFlight   bool             // whether the request counts as in flight
	LiveGauge    prometheus.Gauge // counts the request while it is open; nil unless it is a watch or a stream
}

// Seats are the request's share of the server's capacity.
type Seats struct {
	Ticket    flow.Ticket   // returned by Release
	Schema    *flow.Schema  // flow schema of the seats; nil without priority and fairness
	GrantedAt time.Time     // time when the request got its seats; zero if it did not wait
	Wait      time.Duration // how long it waited for its seats
	onRelease func()

	BodyBudget      *flow.Budget // limits the parts of request bodies; nil: no limit
	HoldsBodyBudget bool         // whether the request holds a share of the budget of body parts
}

// OnRelease calls f when the request returns its share of the server's capacity.
func (s *Seats) OnRelease(f func()) { s.onRelease = f }

// Release returns the request's share of the server's capacity. Later calls do nothing.
func (s *Seats) Release() {
	s.Ticket.Release()
	s.Ticket = flow.Ticket{}
	if s.onRelease != nil {
		s.onRelease()
		s.onRelease = nil
	}
}

// OnEnd calls f at the end of the request, before the functions of earlier calls.
func (a *Answer) OnEnd(f func()) {
	earlier := a.onEnd
	if earlier == nil {
		a.onEnd = f
		return
	}
	a.onEnd = func() {
		f()
		earlier()
	}
}

// End calls the functions that were passed to OnEnd.
func (a *Answer) End() {
	if a.onEnd != nil {
		a.onEnd()
	}
}

// OnStream calls f when the request becomes a stream. The request becomes one if f returns true.
func (a *Answer) OnStream(f func() bool) {
	a.becomeStream = func() { a.isStream = f() || a.isStream }
}

// BecomeStream makes the request a stream, if it can become one.
func (a *Answer) BecomeStream() {
	if a.becomeStream != nil {
		a.becomeStream()
	}
}

// Recorder is an http.ResponseWriter that records the status code and the size of the response.
type Recorder struct {
	http.ResponseWriter
	code     int
	size     int64
	onHeader func(code int)
	copyTo   io.Writer
}

// Code returns the status code; zero if the response has not begun.
func (r *Recorder) Code() int { return r.code }

// Size returns the size of the response so far, in bytes.
func (r *Recorder) Size() int64 { return r.size }

// OnHeader calls f before the response begins.
func (r *Recorder) OnHeader(f func(code int)) { r.onHeader = f }

// CopyTo copies the response body to w, which must not fail.
func (r *Recorder) CopyTo(w io.Writer) { r.copyTo = w }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.beginResponse(code)
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *Recorder) beginResponse(code int) {
	r.code = code
	if r.onHeader != nil {
		r.onHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(data []byte) (int, error) {
	if r.code == 0 {
		r.beginResponse(http.StatusOK)
	}
	if r.copyTo != nil {
		_, _ = r.copyTo.Write(data) // writes to memory, cannot fail
	}
	n, err := r.ResponseWriter.Write(data)
	r.size += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack implements http.Hijacker. It records status 101, because a hijacked connection gets no other response.
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}
