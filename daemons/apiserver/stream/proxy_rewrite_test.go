package stream

import (
	"testing"
)

// Redirects of the proxied server lead through the proxy.
// Proves S11.
func TestRedirectsLeadThroughTheProxy(t *testing.T) {
	const prefix = "/api/v1/namespaces/a/pods/p/proxy"
	for location, want := range map[string]string{
		"/login":                                prefix + "/login",
		"/login/?next=%2Fa#b":                   prefix + "/login/?next=%2Fa#b",
		"/":                                     prefix + "/",
		"http://10.0.0.1:80":                    prefix + "/",
		"http://10.0.0.1:80/a":                  prefix + "/a",
		"https://user@api.example.com:6443/a":   prefix + "/a",
		prefix + "/a":                           prefix + "/a",
		"https://api.example.com:6443" + prefix: prefix,
		prefix + "-other":                       prefix + prefix + "-other",
		"a/b":                                   "a/b",
		"?a=b":                                  "?a=b",
		"https://else.example.com/a":            "https://else.example.com/a",
		"//else.example.com/a":                  "//else.example.com/a",
		"mailto:a@b":                            "mailto:a@b",
		"http://[::1":                           "http://[::1",
	} {
		if got := proxiedLink(prefix, location, "10.0.0.1:80", "api.example.com:6443"); got != want {
			t.Errorf("%s leads to %s, want %s", location, got, want)
		}
	}
}
