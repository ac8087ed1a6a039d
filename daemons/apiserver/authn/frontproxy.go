package authn

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run"
)

// These are the headers in which a front proxy names the user that it has authenticated.
const (
	headerUser        = "X-Remote-User"
	headerUID         = "X-Remote-Uid"
	headerGroup       = "X-Remote-Group"
	headerExtraPrefix = "X-Remote-Extra-"
)

// frontProxy trusts the headers of clients with a certificate of the front proxies' own authority. Other requests go to
// the next authenticator.
type frontProxy struct {
	authorities *authorityFile
	revoked     *run.Revoked // nil without revocation lists
	names       []string     // allowed common names; empty allows any
}

func (f *frontProxy) Authenticate(r *http.Request) (api.User, bool, error) {
	name := r.Header.Get(headerUser)
	if name == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return api.User{}, false, nil
	}
	chain := r.TLS.PeerCertificates
	if f.authorities.verify(chain) != nil {
		return api.User{}, false, nil
	}
	if len(f.names) > 0 && !slices.Contains(f.names, chain[0].Subject.CommonName) {
		return api.User{}, false, nil
	}
	if f.revoked.Check(chain[0]) != nil {
		return api.User{}, false, nil
	}
	user := api.User{Name: name, UID: r.Header.Get(headerUID), Groups: slices.Clone(r.Header.Values(headerGroup))}
	for header, values := range r.Header {
		key, ok := strings.CutPrefix(header, headerExtraPrefix)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[key] = slices.Clone(values)
	}
	// Remove the headers, so that later code cannot mistake them for another statement.
	for header := range r.Header {
		if header == headerUser || header == headerUID || header == headerGroup ||
			strings.HasPrefix(header, headerExtraPrefix) {
			r.Header.Del(header)
		}
	}
	return user, true, nil
}

// TryAuthenticate handles only requests without these headers, because authenticating removes the headers.
func (f *frontProxy) TryAuthenticate(r *http.Request) (api.User, bool, bool) {
	return api.User{}, false, r.Header.Get(headerUser) != ""
}
