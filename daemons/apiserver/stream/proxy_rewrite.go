package stream

import (
	"net/http"
	"net/url"
	"strings"

	"clusterctl/daemons/apiserver/request"
)

// responseRewriter returns a function that adapts a response from behind the proxy. Redirects and links to the proxied
// server lead through the proxy again. CORS headers are removed, because that server must not decide which origins may
// read this API.
func responseRewriter(q *request.Request, target *url.URL) func(*http.Response) error {
	prefix := proxyPrefix(q)
	lead := func(link string) string { return proxiedLink(prefix, link, target.Host, q.HTTP.Host) }
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

// proxyPrefix returns the part of a request's path up to the proxied path.
func proxyPrefix(q *request.Request) string { return strings.TrimSuffix(q.HTTP.URL.Path, q.ProxyPath) }

// escapedProxyPath returns the proxied path as the client escaped it. A %2F must not become a slash for the server
// behind.
func escapedProxyPath(q *request.Request) string {
	escaped, prefix := q.HTTP.URL.EscapedPath(), proxyPrefix(q)
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

// proxiedLink returns a link as a client in front of the proxy must use it. A link to the proxied server gets the
// proxy's prefix; hosts are the names of that server. Other links do not change.
func proxiedLink(prefix, location string, hosts ...string) string {
	to, err := url.Parse(location)
	if err != nil || to.Opaque != "" || !strings.HasPrefix(to.Path, "/") && to.Host == "" {
		return location // relative links work unchanged
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
