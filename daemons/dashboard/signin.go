package dashboard

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// The limits of codes for signing in.
const (
	codeLifetime = time.Minute
	maxCodes     = 32 // a further one replaces the oldest
)

// codes are the codes with which visitors can sign in. It is safe for concurrent use.
type codes struct {
	now func() time.Time

	mu     sync.Mutex
	issued map[[sha256.Size]byte]issuedCode
}

// issuedCode is a code that was not used yet.
type issuedCode struct {
	expires time.Time
	isLocal bool // only for processes of this user
}

func newCodes(now func() time.Time) *codes {
	return &codes{now: now, issued: map[[sha256.Size]byte]issuedCode{}}
}

func (c *codes) issue(isLocal bool) string {
	code, now := newSecret(16), c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.issued) >= maxCodes {
		var oldest [sha256.Size]byte
		first := now.Add(2 * codeLifetime)
		for id, other := range c.issued {
			if other.expires.Before(first) {
				oldest, first = id, other.expires
			}
		}
		delete(c.issued, oldest)
	}
	c.issued[sha256.Sum256([]byte(code))] = issuedCode{now.Add(codeLifetime), isLocal}
	return code
}

// use reports whether a code is valid for a request. It is not valid again.
func (c *codes) use(code string, r *http.Request) bool {
	id := sha256.Sum256([]byte(code))
	c.mu.Lock()
	found, ok := c.issued[id]
	delete(c.issued, id)
	c.mu.Unlock()
	return ok && c.now().Before(found.expires) && (!found.isLocal || isOwnConnection(r))
}

// The limits of tokens for signing in. Each token costs a request to the API server.
const (
	maxSignIns   = 8 // at the same time
	maxTokenSize = 64 << 10
)

// signInLimit limits how many tokens are verified at the same time.
type signInLimit struct{ seats chan struct{} }

func newSignInLimit() *signInLimit { return &signInLimit{make(chan struct{}, maxSignIns)} }

func (l *signInLimit) take() bool {
	select {
	case l.seats <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *signInLimit) release() { <-l.seats }

// The reasons why signing in failed, in the query of the page for signing in.
const (
	signInInvalid     = "invalid"     // the token or the code
	signInUnavailable = "unavailable" // the API server did not answer, or there are too many sessions
	signInBusy        = "busy"        // too many others sign in
)

// serveSignIn serves the page for signing in. With a valid code in the query, it starts a session.
func (d *Dashboard) serveSignIn(pages *staticFiles) http.Handler {
	page := pages.page("signin.html")
	if d.config.SignIn == SignInByCommand {
		page = pages.page("signin-command.html")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := r.URL.Query().Get("code")
		if code == "" || d.config.SignIn != SignInByCommand || r.Method != http.MethodGet {
			page.ServeHTTP(w, r)
			return
		}
		if !d.codes.use(code, r) {
			failSignIn(w, r, signInInvalid, errUnauthenticated())
			return
		}
		d.startSession(w, r, d.config.API)
	})
}

// signInByToken starts a session with the token of a form.
func (d *Dashboard) signInByToken(w http.ResponseWriter, r *http.Request) {
	if d.config.SignIn != SignInByToken {
		writeError(w, errForbidden("this dashboard accepts no tokens: run clusterctl dashboard"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxTokenSize)
	if err := r.ParseForm(); err != nil {
		failSignIn(w, r, signInInvalid, apierrors.NewBadRequest("the form cannot be read"))
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	token = strings.TrimSpace(strings.TrimPrefix(token, "Bearer "))
	if !isToken(token) {
		failSignIn(w, r, signInInvalid, apierrors.NewUnauthorized("the token is not valid"))
		return
	}
	if !d.signIns.take() {
		failSignIn(w, r, signInBusy, apierrors.NewTooManyRequests("too many visitors sign in: try again", 1))
		return
	}
	defer d.signIns.release()
	config := rest.AnonymousClientConfig(d.config.API)
	config.BearerToken = token
	d.startSession(w, r, config)
}

// isToken reports whether a text can be a bearer token: visible characters of ASCII.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// startSession starts a session of the user whom the API server authenticates with config, and redirects to the
// overview. A session that the browser had ends.
func (d *Dashboard) startSession(w http.ResponseWriter, r *http.Request, config *rest.Config) {
	v, err := newVisitor(r.Context(), config)
	if err != nil {
		reason := signInUnavailable
		if apierrors.IsUnauthorized(err) {
			reason = signInInvalid
		} else {
			d.config.Log.Warn("verify the credentials of a visitor", "err", err)
		}
		failSignIn(w, r, reason, err)
		return
	}
	s, cookie, err := d.sessions.start(v)
	if err != nil {
		failSignIn(w, r, signInUnavailable, err)
		return
	}
	if before := d.findSession(r); before != nil && before != s {
		d.sessions.end(before)
	}
	d.config.Log.Info("signed in", "user", v.user)
	d.setCookie(w, cookie)
	if r.Method == http.MethodPost {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(signedInPage)) // fails only if the client is gone
}

// signedInPage continues with the overview. A redirect would not do: browsers do not send a strict cookie with requests
// of a navigation that another site or program began.
const signedInPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">
<link rel="icon" href="data:,"><title>Signed in</title></head>
<body><p>You are signed in. <a href="/">Continue</a></p></body></html>
`

// failSignIn answers a failed attempt to sign in: a form with a redirect to the page, which has the reason in its
// query, and a program with the error.
func failSignIn(w http.ResponseWriter, r *http.Request, reason string, err error) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/signin?error="+reason, http.StatusSeeOther)
		return
	}
	writeError(w, err)
}

// signOut ends the session and everything that it has open.
func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	s := sessionOf(r)
	d.setCookie(w, "")
	w.Header().Set("Clear-Site-Data", `"cache", "storage"`)
	w.WriteHeader(http.StatusNoContent)
	d.sessions.end(s)
	d.config.Log.Info("signed out", "user", s.visitor.user)
}
