package apiserver

import (
	"net/http"
	"slices"
	"time"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/apiserver/identity"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// This file answers reads of one object without a goroutine that waits. These reads are the most frequent requests, and
// the waiting goroutine is most of their cost. The goroutine that reads the connection runs the stages. The goroutine
// that fetches the store's revision for all pending reads then answers them. Requests that are refused or unusual in
// any way take the ordinary path. So do requests that need an authenticator, an authorizer or a webhook that may have
// to wait.

// serveFast reports whether it answers a request, now or later. The request's context has ended, so no stage may wait.
func (s *Server) serveFast(d *h2.Deferred, r *http.Request) (taken bool) {
	if s.options.Limits.RequestTimeout < 3*cache.RevisionTimeout || r.URL.RawQuery != "" {
		return false
	}
	p := &fastRequest{s: s, q: s.parseRequest(d, r), d: d, start: s.options.Now()}
	if !p.isSimpleRead() {
		return false
	}
	p.q.Answer.Header().Set("Cache-Control", cacheControl)
	setAuditID(p.q)
	defer func() {
		if !taken {
			p.q.Answer.Release()
		}
	}()
	for i := range stages {
		if stages[i].runFast == nil || !stages[i].runFast(s, p) {
			return false
		}
	}
	s.metrics.recordArrival(p.q)
	for i := range stages {
		if stages[i].commit != nil {
			stages[i].commit(s, p.q)
		}
	}
	s.cache.CallWhenCurrent(p)
	return true
}

// fastRequest is a request without a goroutine that waits for its answer.
type fastRequest struct {
	s     *Server
	q     *request.Request
	d     *h2.Deferred
	start time.Time
}

// isSimpleRead reports whether the request reads one object of a resource that is served here.
func (p *fastRequest) isSimpleRead() bool {
	q := p.q
	return q.Resource && q.IsServed && q.Verb == "get" && q.Subresource == "" && !q.Served.Virtual && q.Cache != nil &&
		q.Served.Namespaced == (q.Namespace != "") && (q.Served.Verbs == nil || slices.Contains(q.Served.Verbs, q.Verb))
}

// authenticateFast is authenticate for users that can be authenticated without waiting.
func (s *Server) authenticateFast(p *fastRequest) bool { return s.identity.TryAuthenticate(p.q) }

// auditFast decides what is recorded, if recording needs no waiting.
func (s *Server) auditFast(p *fastRequest) bool {
	if s.options.Auditor == nil {
		return true
	}
	if !s.options.Auditor.CanRecordNow() {
		return false
	}
	p.q.Answer.Audit = s.newAuditRecord(p.q)
	return true
}

// hasNoImpersonation sends requests with impersonation to the ordinary path, where it is authorized and logged.
func (s *Server) hasNoImpersonation(p *fastRequest) bool { return !identity.Impersonates(p.q) }

// authorizeFast is authorize for requests that are allowed without waiting.
func (s *Server) authorizeFast(p *fastRequest) bool { return s.identity.TryAuthorize(p.q) }

// hasFilledCache is waitForCache for a cache that has been filled.
func (s *Server) hasFilledCache(*fastRequest) bool { return s.cache.CheckReady() == nil }

// isServed is waitForDefinition for resources that are served already.
func (s *Server) isServed(p *fastRequest) bool { return p.q.IsServed }

// negotiateFast is negotiate for objects that need no conversion.
func (s *Server) negotiateFast(p *fastRequest) bool {
	return s.negotiate(p.q) == nil && !p.q.NeedsConversion()
}

// recordBodiesFast is recordBodies, which never waits here: a read has no body.
func (s *Server) recordBodiesFast(p *fastRequest) bool { return s.recordBodies(p.q) == nil }

// canAnswerLater reports whether the response can be written without waiting once the store's revision is known.
func (s *Server) canAnswerLater(p *fastRequest) bool {
	return p.isSmall()
}

// maxFastObject is the largest object, in bytes, that is answered this way. One goroutine answers all requests that
// waited for the same revision.
const maxFastObject = 64 << 10

// isSmall reports whether the response is quick to write.
func (p *fastRequest) isSmall() bool {
	if f := p.q.Media.Format; f != wire.JSON && f != wire.Protobuf {
		return false
	}
	e := p.q.Cache.Get(p.q.Key())
	return e == nil || e.Size() <= maxFastObject
}

// acquireSeatsFast is acquireSeats if seats are free. The caller returns the seats if it does not take the request.
func (s *Server) acquireSeatsFast(p *fastRequest) bool {
	q := p.q
	if s.options.Limits.Flow == nil {
		return s.tryEnterInFlight(q)
	}
	schema := s.options.Limits.Flow.Classify(&q.User, &q.Request)
	schema.SetHeaders(q.Answer.Header())
	ticket, ok := schema.ExemptTicket()
	if !ok {
		ticket, ok = s.options.Limits.Flow.Try(schema, estimateWork(q))
	}
	q.Answer.Ticket, q.Answer.Schema = ticket, schema
	return ok
}

// commitSeats records that a request holds its seats, once it is certain that it is taken.
func (s *Server) commitSeats(q *request.Request) { q.Answer.Ticket.Begin(0) }

// OnCurrent implements cache.Reader. It answers the request.
func (p *fastRequest) OnCurrent(why error) {
	s, q := p.s, p.q
	defer p.d.Send()
	defer s.metrics.recordDone(q, p.start)
	defer s.recordCompleted(q)
	defer q.Answer.Release()
	defer func() {
		if reason := recover(); reason != nil {
			s.panicked(q, reason)
		}
	}()
	err := request.UnavailableError(why)
	if err == nil {
		err = s.reads.GetCached(q)
	}
	if err != nil {
		q.WriteError(s.log, err)
	}
}

// OnBatchDone implements cache.Reader. It sends the responses of all requests that waited for the same revision in one
// piece.
func (p *fastRequest) OnBatchDone() { p.d.Flush() }
