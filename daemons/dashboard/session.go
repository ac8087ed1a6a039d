package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/dashboard/table"
)

// The limits of sessions.
const (
	maxSessions       = 1000
	maxSessionsOfUser = 20               // a further one ends the user's session that was idle longest
	idleTimeout       = 30 * time.Minute // since the last request
	sessionLifetime   = 12 * time.Hour
	maxOpenRequests   = 64 // of one session, including streams
)

// sessionID identifies a session by the digest of its cookie, so that comparing takes the same time for all cookies.
type sessionID [sha256.Size]byte

func newSecret(size int) string {
	secret := make([]byte, size)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// session is the time between signing in and signing out of a visitor. Create it with sessions.start.
type session struct {
	id       sessionID
	csrf     string
	visitor  *visitor
	access   *accessCache
	tables   *table.Pool
	requests requestsCache
	ends     time.Time // at the latest

	mu      sync.Mutex
	used    time.Time // last request
	isOver  bool
	last    int
	cancels map[int]context.CancelFunc // of open requests
}

// hold registers the cancel function of an open request, which is called when the session ends. The caller calls
// release when the request is answered.
func (s *session) hold(cancel context.CancelFunc) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isOver:
		return nil, errUnauthenticated()
	case len(s.cancels) >= maxOpenRequests:
		return nil, apierrors.NewTooManyRequests("too many open requests of this session: close some pages", 1)
	}
	s.last++
	at := s.last
	s.cancels[at] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, at)
	}, nil
}

// touch records that the session is used.
func (s *session) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = now
}

func (s *session) lastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *session) hasExpired(now time.Time) bool {
	return !now.Before(s.ends) || now.Sub(s.lastUsed()) >= idleTimeout
}

// end cancels all open requests of the session, and lets no further ones begin.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOver = true
	for _, cancel := range s.cancels {
		cancel()
	}
	clear(s.cancels)
	s.tables.Stop()
}

// sessions is the set of all sessions. It is safe for concurrent use.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	byID map[sessionID]*session
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byID: map[sessionID]*session{}}
}

// start returns a new session and the value of its cookie.
func (s *sessions) start(v *visitor) (*session, string, error) {
	now, secret := s.now(), newSecret(32)
	started := &session{
		id: sha256.Sum256([]byte(secret)), csrf: newSecret(32), visitor: v, access: newAccessCache(s.now),
		tables: table.NewPool(v.getTable), used: now, ends: now.Add(sessionLifetime),
		cancels: map[int]context.CancelFunc{},
	}
	s.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	var oldest *session
	for _, other := range s.byID {
		if other.visitor.user != v.user {
			continue
		}
		count++
		if oldest == nil || other.lastUsed().Before(oldest.lastUsed()) {
			oldest = other
		}
	}
	if count >= maxSessionsOfUser {
		delete(s.byID, oldest.id)
		oldest.end()
	}
	if len(s.byID) >= maxSessions {
		return nil, "", apierrors.NewServiceUnavailable("too many visitors are signed in: try again later")
	}
	s.byID[started.id] = started
	return started, secret, nil
}

// find returns the session of a cookie, or nil. It counts as a use of the session.
func (s *sessions) find(cookie string) *session {
	s.mu.Lock()
	found := s.byID[sha256.Sum256([]byte(cookie))]
	s.mu.Unlock()
	if found == nil {
		return nil
	}
	now := s.now()
	if found.hasExpired(now) {
		s.end(found)
		return nil
	}
	found.touch(now)
	return found
}

// end ends a session.
func (s *sessions) end(of *session) {
	s.mu.Lock()
	delete(s.byID, of.id)
	s.mu.Unlock()
	of.end()
}

// sweep ends the sessions whose time is over.
func (s *sessions) sweep() {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.byID {
		if one.hasExpired(now) {
			delete(s.byID, id)
			one.end()
		}
	}
}

// endAll ends all sessions, and waits until their tables have stopped.
func (s *sessions) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byID {
		one.end()
	}
	for _, one := range s.byID {
		one.tables.Wait()
	}
	clear(s.byID)
}

// setCookie gives a browser the cookie of a session, or removes it if the value is empty.
func (d *Dashboard) setCookie(w http.ResponseWriter, value string) {
	cookie := &http.Cookie{Name: d.cookieName(), Value: value, Path: "/", HttpOnly: true, Secure: d.config.TLS,
		SameSite: http.SameSiteStrictMode}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}
