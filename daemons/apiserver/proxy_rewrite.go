package apiserver

import (
	"net/http"
	"net/url"
	"strings"
)

// rewritten makes the answer of who was proxied to one of this server: a redirect within it and a page's links lead
// through the proxy again, and which origins may read it is not for the other to say.
func rewritten(q *request, target *url.URL) func(*http.Response) error {
	prefix := proxiedAt(q)
	lead := func(link string) string { return through(prefix, link, target.Host, q.http.Host) }
	return func(r *http.Response) error {
		for name := range r.Header {
			if strings.HasPrefix(name, "Access-Control-Allow-") || name == "Access-Control-Expose-Headers" ||
				name == "Access-Control-Max-Age" {
				r.Header.Del(name)
			}
		}
		if to := r.Header.Get("Location"); to != "" {
			r.Header.Set("Location", lead(to))
		}
		rewritePage(r, lead)
		return nil
	}
}

// proxiedAt is the part of a request's path that names what is proxied to.
func proxiedAt(q *request) string { return strings.TrimSuffix(q.http.URL.Path, q.rest) }

// escapedRest is what follows the proxy in a request's path, as the client escaped it: a %2F is no slash to
// who is behind.
func escapedRest(q *request) string {
	escaped, prefix := q.http.URL.EscapedPath(), proxiedAt(q)
	for i := range len(escaped) {
		if escaped[i] != '/' {
			continue
		}
		before, err := url.PathUnescape(escaped[:i])
		if err == nil && before == prefix {
			return escaped[i:]
		}
	}
	return ""
}

// through is a redirect as it is seen from before the proxy: one to the proxied server itself, which
// may call itself by either name, gets the prefix under which it is proxied, and all others stay as they are.
func through(prefix, location string, hosts ...string) string {
	to, err := url.Parse(location)
	if err != nil || to.Opaque != "" || !strings.HasPrefix(to.Path, "/") && to.Host == "" {
		return location // relative to where the client is already
	}
	within := to.Host == ""
	for _, host := range hosts {
		within = within || to.Host == host
	}
	if !within {
		return location
	}
	to.Scheme, to.Host, to.User = "", "", nil
	if to.Path != prefix && !strings.HasPrefix(to.Path, prefix+"/") {
		if !strings.HasPrefix(to.Path, "/") {
			to.Path, to.RawPath = "/"+to.Path, "/"+to.EscapedPath()
		}
		to.Path, to.RawPath = prefix+to.Path, (&url.URL{Path: prefix}).EscapedPath()+to.EscapedPath()
	}
	return to.String()
}
