package proxy

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"clusterctl/daemons/ingress/route"
)

// redirectLocation returns the target of a redirect. Parts that the redirect does not set are those of the request.
func redirectLocation(r *route.Redirect, secure bool, host string, port int, target string) string {
	scheme := r.Scheme
	if scheme == "" {
		scheme = "http"
		if secure {
			scheme = "https"
		}
	}
	name := string(hostname([]byte(host)))
	if r.Host != "" {
		name = r.Host
	}
	if r.Port != 0 {
		port = r.Port
	} else if r.Scheme != "" {
		port = map[string]int{"http": 80, "https": 443}[r.Scheme]
	}
	path, query, exists := strings.Cut(target, "?")
	if to, ok := rewrittenPath(&route.Rewrite{Path: r.Path, Prefix: r.Prefix}, []byte(path)); ok {
		if target = to; exists && path != "" {
			target += "?" + query
		}
	}
	var out strings.Builder
	out.WriteString(scheme + "://" + name)
	if !(scheme == "http" && port == 80 || scheme == "https" && port == 443) {
		out.WriteString(":" + strconv.Itoa(port))
	}
	out.WriteString(target)
	return out.String()
}

func appendRedirect(
	out []byte,
	r *route.Redirect,
	secure bool,
	host string,
	port int,
	target []byte,
	closes bool,
) []byte {
	out = append(out,
		"HTTP/1.1 "+strconv.Itoa(r.Code)+" "+http.StatusText(r.Code)+"\r\nContent-Length: 0\r\nLocation: "...)
	out = append(out, redirectLocation(r, secure, host, port, string(target))...)
	if closes {
		out = append(out, "\r\nConnection: close"...)
	}
	return append(out, "\r\n\r\n"...)
}

// rewrittenPath returns the path that replaces the request's path. It returns false if the path stays.
func rewrittenPath(r *route.Rewrite, path []byte) (string, bool) {
	switch {
	case r == nil:
		return "", false
	case r.Path != "":
		return r.Path, true
	case r.Prefix == nil:
		return "", false
	}
	return r.Prefix.Apply(path)
}

func queryValue(query, name string) (string, bool) {
	values, err := url.ParseQuery(query)
	if err != nil || len(values[name]) == 0 {
		return "", false
	}
	return values[name][0], true
}
