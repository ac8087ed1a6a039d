package dashboard

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"clusterctl/daemons/run"
)

// contentSecurityPolicy lets a page load only what this server serves, and lets no other page embed it.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// csrfHeader has the session's token on each request that may change something. Other sites cannot read the token, and
// cannot send the header.
const csrfHeader = "X-Dashboard-Token"

func setSecurityHeaders(h http.Header, isTLS bool) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if isTLS {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// isSafe reports whether requests with a method change nothing.
func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// isUpgrade reports whether a request asks for another protocol, such as WebSocket.
func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// checkOrigin refuses requests of pages of other sites, if they may change something or open a WebSocket. Browsers send
// cookies with such requests, and they let a page read a WebSocket of any site.
func checkOrigin(r *http.Request, isTLS bool) error {
	if isSafe(r.Method) && !isUpgrade(r) {
		return nil
	}
	own := "http://" + r.Host
	if isTLS {
		own = "https://" + r.Host
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 1 && strings.EqualFold(origins[0], own) {
		return nil
	}
	// A form of a page with the referrer policy no-referrer sends the origin null. Pages cannot set Sec-Fetch-Site.
	hidden := len(origins) == 0 || len(origins) == 1 && origins[0] == "null"
	if hidden && !isUpgrade(r) && r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return nil
	}
	return errForbidden("the request does not come from a page of this dashboard")
}

type sessionKey struct{}

// sessionOf returns the session of a request that withSession passed on.
func sessionOf(r *http.Request) *session {
	s, _ := r.Context().Value(sessionKey{}).(*session)
	return s
}

// withSession passes on requests that have a session, and the session's token if they may change something. The
// request's context ends with the session.
func (d *Dashboard) withSession(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := d.findSession(r)
		if s == nil {
			writeError(w, errUnauthenticated())
			return
		}
		token := r.Header.Get(csrfHeader)
		if !isSafe(r.Method) && subtle.ConstantTimeCompare([]byte(token), []byte(s.csrf)) != 1 {
			writeError(w, errForbidden("the request has no valid "+csrfHeader+" header: reload the page"))
			return
		}
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), sessionKey{}, s))
		defer cancel()
		release, err := s.hold(cancel)
		if err != nil {
			writeError(w, err)
			return
		}
		defer release()
		h(w, r.WithContext(ctx))
	})
}

// withPage passes on requests that have a session, and redirects others to the page for signing in.
func (d *Dashboard) withPage(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.findSession(r) == nil {
			http.Redirect(w, r, "/signin", http.StatusSeeOther)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// findSession returns the session of a request's cookie, or nil.
func (d *Dashboard) findSession(r *http.Request) *session {
	cookie, err := r.Cookie(d.cookieName())
	if errors.Is(err, http.ErrNoCookie) {
		return nil
	}
	found := d.sessions.find(cookie.Value)
	if found != nil {
		run.ConnOf(r.Context()).Identify()
	}
	return found
}

// cookieName returns the name of the session's cookie. Browsers accept a name with the prefix __Host- only from the
// host itself, with TLS.
func (d *Dashboard) cookieName() string {
	name := "clusterctl-dashboard" + d.config.CookieSuffix
	if d.config.TLS {
		return "__Host-" + name
	}
	return name
}
