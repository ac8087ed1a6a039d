package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/apiserver/wire"
)

// Reads of one object are the most frequent requests, and what a goroutine costs that waits for the store, together with
// fifteen others, is most of what such a read costs. So those that can be decided without waiting for anything go
// through the stages on the goroutine that reads the connection, and are answered by the one that has looked at the
// store's revision for all of them. Whatever is unusual about one, or refused, goes the way that all requests go.

// prompt says whether it answers a request, now or later. The request's context has ended: nobody can wait with it.
func (s *Server) prompt(d *h2.Deferred, r *http.Request) (taken bool) {
	if s.o.RequestTimeout < 3*cache.LookTimeout || r.URL.RawQuery != "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || !plainly(r.Header) {
		return false
	}
	rec := &recorder{ResponseWriter: d}
	p := &prompted{s: s, q: s.read(rec, r), rec: rec, d: d, start: s.o.Now()}
	if !p.simple() {
		return false
	}
	rec.Header().Set("Cache-Control", cacheControl)
	defer func() {
		if !taken {
			rec.release()
		}
	}()
	if !p.passes() {
		return false
	}
	s.cache.Tell(p)
	return true
}

// plainly says whether a client certificate is all that a request says of who asks.
func plainly(h http.Header) bool {
	for name := range h {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
			return false
		}
	}
	return true
}

// prompted is a request that no goroutine waits with.
type prompted struct {
	s     *Server
	q     *request
	rec   *recorder
	d     *h2.Deferred
	start time.Time
}

// simple says whether the request is to read one object that is served here.
func (p *prompted) simple() bool {
	q := p.q
	return q.Resource && q.known && q.Verb == "get" && q.Subresource == "" && !q.served.Virtual && q.cache != nil &&
		q.served.Namespaced == (q.Namespace != "") && (q.served.Verbs == nil || slices.Contains(q.served.Verbs, q.Verb))
}

// passes sends the request through the stages; false if it gets stuck, having left no trace.
func (p *prompted) passes() bool {
	s, q := p.s, p.q
	user, ok, err := s.known(q.http)
	if err != nil || !ok {
		return false
	}
	q.user = user
	if !s.promptTurn(q) {
		return false
	}
	var why string
	if len(s.o.Authorizers) > 0 {
		if why, err = s.decided(q.http.Context(), q.user, q.Request); err != nil {
			return false
		}
	}
	if s.negotiate(q) != nil || q.converts() || s.cache.Ready() != nil || !p.small() {
		return false
	}
	if s.o.Auditor != nil && (!s.o.Auditor.Roomy() || s.audit(q) != nil) {
		return false
	}
	if len(s.o.Authorizers) > 0 {
		q.trail.authorized(why, nil)
	}
	return true
}

// mostPrompt is how large an object may be: one goroutine answers all who have waited for the same look.
const mostPrompt = 64 << 10

// small says whether the answer is made in no time.
func (p *prompted) small() bool {
	if f := p.q.media.Format; f != wire.JSON && f != wire.Protobuf {
		return false
	}
	e := p.q.cache.Get(p.q.key())
	return e == nil || e.Size() <= mostPrompt
}

// promptTurn is takeTurn without waiting.
func (s *Server) promptTurn(q *request) bool {
	if s.o.Flow == nil {
		return s.admitInFlight(q) == nil
	}
	schema := s.o.Flow.Classify(&q.user, &q.Request)
	schema.SetHeaders(q.w.Header())
	if schema.Exempt() {
		return true
	}
	ticket, ok := s.o.Flow.Try(schema, q.work())
	q.w.(*recorder).turn = ticket
	return ok
}

// Current implements cache.Reader: it answers.
func (p *prompted) Current(why error) {
	s, q := p.s, p.q
	defer p.d.Send()
	defer s.observed.done(q, p.rec, p.start)
	defer s.audited(q, p.rec)
	defer p.rec.release()
	defer func() {
		if reason := recover(); reason != nil {
			s.panicked(q, p.rec, reason)
		}
	}()
	err := unavailable(why)
	if err == nil {
		err = s.found(q)
	}
	if err != nil {
		s.fail(q, err)
	}
}

// Others implements cache.Reader: what those who asked together are answered goes out together.
func (p *prompted) Others() { p.d.Flush() }
