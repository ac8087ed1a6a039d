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
	for i := range s.stages {
		if s.stages[i].runFast == nil || !s.stages[i].runFast(p.q) {
			return false
		}
	}
	s.metrics.recordArrival(p.q)
	for i := range s.stages {
		if s.stages[i].commit != nil {
			s.stages[i].commit(p.q)
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

// hasNoImpersonation sends requests with impersonation to the ordinary path, where it is authorized and logged.
func hasNoImpersonation(q *request.Request) bool { return !identity.Impersonates(q) }

// isServed is waitForDefinition for resources that are served already.
func isServed(q *request.Request) bool { return q.IsServed }

// maxFastObject is the largest object, in bytes, that is answered this way. One goroutine answers all requests that
// waited for the same revision.
const maxFastObject = 64 << 10

// canAnswerLater reports whether the response is quick to write, without waiting, once the store's revision is known.
func canAnswerLater(q *request.Request) bool {
	if f := q.Media.Format; f != wire.JSON && f != wire.Protobuf {
		return false
	}
	e := q.Cache.Get(q.Key())
	return e == nil || e.Size() <= maxFastObject
}

// OnCurrent implements cache.Reader. It answers the request.
func (p *fastRequest) OnCurrent(cause error) {
	s, q := p.s, p.q
	defer p.d.Send()
	defer s.metrics.recordDone(q, p.start)
	defer s.audit.recordCompleted(q)
	defer q.Answer.Release()
	defer func() {
		if reason := recover(); reason != nil {
			s.panicked(q, reason)
		}
	}()
	err := request.UnavailableError(cause)
	if err == nil {
		err = s.resources.reads.GetCached(q)
	}
	if err != nil {
		q.WriteError(s.log, err)
	}
}

// OnBatchDone implements cache.Reader. It sends the responses of all requests that waited for the same revision in one
// piece.
func (p *fastRequest) OnBatchDone() { p.d.Flush() }
