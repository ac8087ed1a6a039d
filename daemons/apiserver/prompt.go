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

// Reads of one object are the most frequent requests, and what a goroutine costs that waits for the store, together
// with fifteen others, is most of what such a read costs. So those that can be decided without waiting for anything go
// through the stages on the goroutine that reads the connection, and are answered by the one that has looked at the
// store's revision for all of them. Whatever is unusual about one, or refused, goes the way that all requests go. So
// does what asks somebody who has to wait: an authenticator or authorizer that does not say how it does without, a
// webhook most of all.

// prompt says whether it answers a request, now or later. The request's context has ended: nobody can wait with it.
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

// identifyPromptly is identify for those who are known without waiting.
func (s *Server) identifyPromptly(p *prompted) bool {
	user, known := s.knownPromptly(p.q.http)
	if !known {
		return false // or it is found out why
	}
	p.q.user = user
	return true
}

// knownPromptly is known without waiting; false also for those who are not known.
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

// auditPromptly decides what is kept, if that can be kept without waiting.
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

// nobodyElse leaves it to the ordinary way to be somebody else: that has to be allowed and is logged.
func (s *Server) nobodyElse(p *prompted) bool {
	for name := range p.q.http.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return false
		}
	}
	return true
}

// authorizePromptly is authorize where it is decided without waiting that the user may.
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

// isServed is arrive for what is served already, which is all that goes this way.
func (s *Server) isServed(p *prompted) bool { return p.q.known }

// negotiatePromptly leaves an object that has to be converted to the ordinary way.
func (s *Server) negotiatePromptly(p *prompted) bool {
	return s.negotiate(p.q) == nil && !p.q.converts()
}

// keepBodiesPromptly is keepBodies, for a read has no body to wait for.
func (s *Server) keepBodiesPromptly(p *prompted) bool { return s.keepBodies(p.q) == nil }

// mayAnswerLater says whether the answer is made in no time once the store's revision is known.
func (s *Server) mayAnswerLater(p *prompted) bool { return s.cache.Ready() == nil && p.small() }

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

// takeTurnPromptly is takeTurn where there is room. The turn is given back if the request is not taken.
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

// begun counts that a request has its turn, once it is sure that it is taken.
func (s *Server) begun(q *request) { q.w.(*recorder).turn.Begin(0) }

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
