package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/apiserver/wire"
)

// This file answers reads of one object without a goroutine that waits. These reads are the most frequent requests, and
// the waiting goroutine is most of their cost. The goroutine that reads the connection runs the stages. The goroutine
// that fetches the store's revision for all pending reads then answers them. Requests that are refused or unusual in
// any way take the ordinary path. So do requests that need an authenticator, an authorizer or a webhook that may have
// to wait.

// prompt reports whether it answers a request, now or later. The request's context has ended, so no stage may wait.
func (s *Server) prompt(d *h2.Deferred, r *http.Request) (taken bool) {
	if s.o.RequestTimeout < 3*cache.LookTimeout || r.URL.RawQuery != "" {
		return false
	}
	rec := &recorder{ResponseWriter: d}
	p := &prompted{s: s, q: s.read(rec, r), rec: rec, d: d, start: s.o.Now()}
	if !p.simple() {
		return false
	}
	rec.Header().Set("Cache-Control", cacheControl)
	p.q.nameForAudit()
	defer func() {
		if !taken {
			rec.release()
		}
	}()
	for i := range stages {
		if stages[i].prompt == nil || !stages[i].prompt(s, p) {
			return false
		}
	}
	s.observed.begin(p.q)
	for i := range stages {
		if stages[i].taken != nil {
			stages[i].taken(s, p.q)
		}
	}
	s.cache.Tell(p)
	return true
}

// prompted is a request without a goroutine that waits for its answer.
type prompted struct {
	s     *Server
	q     *request
	rec   *recorder
	d     *h2.Deferred
	start time.Time
}

// simple reports whether the request reads one object of a resource that is served here.
func (p *prompted) simple() bool {
	q := p.q
	return q.Resource && q.known && q.Verb == "get" && q.Subresource == "" && !q.served.Virtual && q.cache != nil &&
		q.served.Namespaced == (q.Namespace != "") && (q.served.Verbs == nil || slices.Contains(q.served.Verbs, q.Verb))
}

// identifyPromptly is identify for users that can be authenticated without waiting.
func (s *Server) identifyPromptly(p *prompted) bool {
	user, known := s.knownPromptly(p.q.http)
	if !known {
		return false // the ordinary path finds the reason
	}
	p.q.user = user
	return true
}

// knownPromptly is known without waiting. It returns false if it would have to wait, or if authentication fails.
func (s *Server) knownPromptly(r *http.Request) (api.User, bool) {
	for _, a := range s.o.Authenticators {
		prompt, can := a.(api.PromptAuthenticator)
		if !can {
			return api.User{}, false
		}
		user, ok, waits := prompt.AuthenticatePromptly(r)
		if waits {
			return api.User{}, false
		}
		if ok {
			return withAuthenticated(user), true
		}
	}
	return api.User{}, false
}

// auditPromptly decides what is recorded, if recording needs no waiting.
func (s *Server) auditPromptly(p *prompted) bool {
	if s.o.Auditor == nil {
		return true
	}
	if !s.o.Auditor.Roomy() {
		return false
	}
	p.q.trail = s.trailOf(p.q)
	return true
}

// nobodyElse sends requests with impersonation to the ordinary path, where it is authorized and logged.
func (s *Server) nobodyElse(p *prompted) bool {
	for name := range p.q.http.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return false
		}
	}
	return true
}

// authorizePromptly is authorize for requests that are allowed without waiting.
func (s *Server) authorizePromptly(p *prompted) bool {
	if len(s.o.Authorizers) == 0 {
		return true
	}
	for _, a := range s.o.Authorizers {
		prompt, can := a.(api.PromptAuthorizer)
		if !can {
			return false
		}
		decision, reason, waits := prompt.AuthorizePromptly(p.q.user, p.q.Request)
		switch {
		case waits || decision == api.Deny:
			return false
		case decision == api.Allow:
			p.q.trail.authorized(reason, nil)
			return true
		}
	}
	return false
}

// isServed is arrive for resources that are served already.
func (s *Server) isServed(p *prompted) bool { return p.q.known }

// negotiatePromptly is negotiate for objects that need no conversion.
func (s *Server) negotiatePromptly(p *prompted) bool {
	return s.negotiate(p.q) == nil && !p.q.converts()
}

// keepBodiesPromptly is keepBodies, which never waits here: a read has no body.
func (s *Server) keepBodiesPromptly(p *prompted) bool { return s.keepBodies(p.q) == nil }

// mayAnswerLater reports whether the response can be written without waiting once the store's revision is known.
func (s *Server) mayAnswerLater(p *prompted) bool { return s.cache.Ready() == nil && p.small() }

// mostPrompt is the largest object, in bytes, that is answered this way. One goroutine answers all requests that waited
// for the same revision.
const mostPrompt = 64 << 10

// small reports whether the response is quick to write.
func (p *prompted) small() bool {
	if f := p.q.media.Format; f != wire.JSON && f != wire.Protobuf {
		return false
	}
	e := p.q.cache.Get(p.q.key())
	return e == nil || e.Size() <= mostPrompt
}

// takeTurnPromptly is takeTurn if seats are free. The caller returns the seats if it does not take the request.
func (s *Server) takeTurnPromptly(p *prompted) bool {
	q := p.q
	if s.o.Flow == nil {
		return s.enterInFlight(q)
	}
	schema := s.o.Flow.Classify(&q.user, &q.Request)
	schema.SetHeaders(q.w.Header())
	ticket, ok := schema.Exempt()
	if !ok {
		ticket, ok = s.o.Flow.Try(schema, q.work())
	}
	q.w.(*recorder).turn, q.schema = ticket, schema
	return ok
}

// begun records that a request holds its seats, once it is certain that it is taken.
func (s *Server) begun(q *request) { q.w.(*recorder).turn.Begin(0) }

// Current implements cache.Reader. It answers the request.
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

// Others implements cache.Reader. It sends the responses of all requests that waited for the same revision in one
// piece.
func (p *prompted) Others() { p.d.Flush() }
