package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"clusterctl/daemons/api"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// callers identifies the sender of a request. The API server authenticates users and names them in headers. It is
// trusted because of its certificate, whose authority signs nothing else.
type callers struct {
	proxies *run.Authorities // authorities of front proxies; nil trusts none
	names   []string         // permitted names in a front proxy's certificate; empty means any
	clients *run.Authorities // authorities of clients that read the daemon's own pages; nil trusts none
	revoked *run.Revoked
}

func newCallers(cfg config.MetricsServer, log *slog.Logger) (c *callers, err error) {
	c = &callers{names: cfg.RequestheaderAllowedNames}
	var more []string
	if cfg.RequestheaderClientCAFile != "" {
		if c.proxies, err = run.NewAuthorities(cfg.RequestheaderClientCAFile); err != nil {
			return nil, fmt.Errorf("read the CA of front proxies: %w", err)
		}
		more = append(more, cfg.RequestheaderClientCAFile)
	}
	if cfg.ClientCAFile != "" {
		if c.clients, err = run.NewAuthorities(cfg.ClientCAFile); err != nil {
			return nil, fmt.Errorf("read the CA of clients: %w", err)
		}
	}
	c.revoked, err = run.NewRevoked(cfg.ClientCRLFile, cfg.ClientCAFile, log, more...)
	return c, err
}

var errNotProxy = errors.New("only the cluster's API server is answered here: ask there")

// forwardedUser returns the user on whose behalf the API server sends a request. It returns an error if the sender is
// not the API server, since its headers prove nothing then.
func (c *callers) forwardedUser(r *http.Request) (api.User, error) {
	chain, err := c.verify(r.TLS, c.proxies)
	if err != nil {
		return api.User{}, errors.Join(errNotProxy, err)
	}
	if name := chain[0].Subject.CommonName; len(c.names) > 0 && !slices.Contains(c.names, name) {
		return api.User{}, fmt.Errorf("%w: %s is not a front proxy", errNotProxy, name)
	}
	user := api.User{
		Name:   r.Header.Get("X-Remote-User"),
		UID:    r.Header.Get("X-Remote-Uid"),
		Groups: r.Header.Values("X-Remote-Group"),
	}
	if user.Name == "" {
		return api.User{}, errors.New("the front proxy does not send the user's name")
	}
	const extra = "X-Remote-Extra-"
	for name, values := range r.Header {
		if key, ok := strings.CutPrefix(name, extra); ok {
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if user.Extra == nil {
				user.Extra = map[string][]string{}
			}
			key = strings.ToLower(key)
			user.Extra[key] = append(user.Extra[key], values...)
		}
	}
	return user, nil
}

// withVerifiedChain returns the request with the verified chain of its client certificate, if it has one.
func (c *callers) withVerifiedChain(r *http.Request) *http.Request {
	state := *r.TLS
	state.VerifiedChains = nil
	if chain, err := c.verify(r.TLS, c.clients); err == nil {
		state.VerifiedChains = [][]*x509.Certificate{chain}
	}
	authenticated := *r
	authenticated.TLS = &state
	return &authenticated
}

// verify returns the chain of a certificate that an authority in by has signed and that is not revoked.
func (c *callers) verify(state *tls.ConnectionState, by *run.Authorities) ([]*x509.Certificate, error) {
	if state == nil || len(state.PeerCertificates) == 0 || by == nil {
		return nil, errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, one := range state.PeerCertificates[1:] {
		between.AddCert(one)
	}
	leaf := state.PeerCertificates[0]
	chains, err := leaf.Verify(
		x509.VerifyOptions{
			Roots:         by.Pool(),
			Intermediates: between,
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
	)
	if err != nil {
		return nil, err
	}
	return chains[0], c.revoked.Check(leaf)
}
