// Package authn authenticates requests to the API server. It accepts client certificates, headers of trusted front
// proxies, and tokens: of service accounts, of joining machines, of external issuers, and of a token webhook. It also
// issues service-account tokens, because issuing and verifying use the same keys. Package authz decides what the user
// may do.
package authn

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/remote"
	"clusterctl/daemons/apiserver/settings"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// Authn holds the API server's authenticators.
type Authn struct {
	// File is the AuthenticationConfiguration; nil if there is none. The caller of the server also runs File.
	File *settings.File[configuration]
	// Webhook is the kubeconfig of the token webhook. The same holds for it as for File.
	Webhook *settings.File[*remote.Server]

	chain            []api.Authenticator
	bearer           *bearer
	defaultAnonymous Anonymous      // used without a configuration
	proxies          *authorityFile // authorities of front proxies; nil if there are none
	revoked          *run.Revoked   // revoked client certificates; nil without revocation lists
	tokens           *Tokens        // nil without service-account keys
}

// New reads the files that cfg names. A nil now means time.Now.
func New(cfg config.APIServer, objects api.Objects, now func() time.Time, log *slog.Logger) (*Authn, error) {
	if now == nil {
		now = time.Now
	}
	a := &Authn{}
	if cfg.ClientCAFile != "" {
		var more []string
		if cfg.RequestheaderClientCAFile != "" {
			more = append(more, cfg.RequestheaderClientCAFile)
		}
		var err error
		if a.revoked, err = run.NewRevoked(cfg.ClientCRLFile, cfg.ClientCAFile, log, more...); err != nil {
			return nil, err
		}
	}
	if cfg.RequestheaderClientCAFile != "" {
		pool, err := newAuthorityFile(cfg.RequestheaderClientCAFile, now)
		if err != nil {
			return nil, err
		}
		a.proxies = pool
		a.chain = append(a.chain,
			&frontProxy{authorities: pool, revoked: a.revoked, names: cfg.RequestheaderAllowedNames})
	}
	if cfg.ClientCAFile != "" {
		pool, err := newAuthorityFile(cfg.ClientCAFile, now)
		if err != nil {
			return nil, err
		}
		a.chain = append(a.chain, &clientCert{authorities: pool, revoked: a.revoked})
	}
	if len(cfg.ServiceAccountKeyFiles) > 0 || cfg.ServiceAccountSigningKeyFile != "" {
		keys, err := openKeys(cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile, now, log)
		if err != nil {
			return nil, err
		}
		a.tokens = newTokens(keys, cfg.ServiceAccountIssuer, cfg.APIAudiences, objects, now)
	}
	return a, a.addTokens(cfg, objects, now, log)
}

// addTokens adds the token authenticators. That of this cluster's service accounts is first.
func (a *Authn) addTokens(cfg config.APIServer, objects api.Objects, now func() time.Time, log *slog.Logger) error {
	audiences := cfg.APIAudiences
	if len(audiences) == 0 {
		audiences = []string{cfg.ServiceAccountIssuer}
	}
	a.bearer = &bearer{}
	if a.tokens != nil {
		a.bearer.verifiers = append(a.bearer.verifiers, a.tokens)
	}
	if cfg.EnableBootstrapTokenAuth {
		a.bearer.verifiers = append(a.bearer.verifiers, &bootstrap{objects, audiences, now})
	}
	a.defaultAnonymous = newAnonymous(cfg.AnonymousAuth, nil)
	if cfg.AuthenticationConfig != "" {
		file, err := settings.Open(
			"authentication configuration",
			cfg.AuthenticationConfig,
			func(text []byte, _ func(string) ([]byte, error)) (configuration, error) {
				return parseConfiguration(cfg, text, audiences, now)
			},
			log,
		)
		if err != nil {
			return err
		}
		a.File = file
		a.bearer.verifiers = append(a.bearer.verifiers, issuers{file})
	}
	if cfg.AuthenticationTokenWebhookConfigFile != "" {
		path := cfg.AuthenticationTokenWebhookConfigFile
		file, err := settings.Open(
			"configuration of the token webhook",
			path,
			func(text []byte, other func(string) ([]byte, error)) (*remote.Server, error) {
				return remote.New(text, path, webhookTimeout, other)
			},
			log,
		)
		if err != nil {
			return err
		}
		a.Webhook = file
		a.bearer.verifiers = append(a.bearer.verifiers,
			&webhook{server: file, audiences: audiences, ttl: cfg.AuthenticationTokenWebhookCacheTTL, now: now})
	}
	if len(a.bearer.verifiers) > 0 {
		a.chain = append(a.chain, a.bearer)
	}
	return nil
}

// webhookTimeout limits one call to the token webhook.
const webhookTimeout = 10 * time.Second

// Verify returns the user of a token, and those of the wanted audiences that the token is valid for.
func (a *Authn) Verify(ctx context.Context, token string, audiences []string) (api.User, []string, error) {
	return a.bearer.verify(ctx, token, audiences)
}

// Anonymous reports whether a path is open to requests without credentials. isDefault is true for the paths that are
// open by default.
func (a *Authn) Anonymous(path string, isDefault bool) bool {
	if a.File != nil {
		return a.File.Get().anonymous.Allows(path, isDefault)
	}
	return a.defaultAnonymous.Allows(path, isDefault)
}

// Tokens returns the service-account tokens; nil without service-account keys.
func (a *Authn) Tokens() *Tokens { return a.tokens }

// Authenticate tries the authenticators in order, until one knows the user. If none does, it returns the errors of all.
func (a *Authn) Authenticate(r *http.Request) (api.User, bool, error) {
	var errs []error
	for _, way := range a.chain {
		user, ok, err := way.Authenticate(r)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			return withAuthenticatedGroup(user), true, nil
		}
	}
	if len(errs) > 0 {
		return api.User{}, false, fmt.Errorf("authenticate: %w", utilerrors.NewAggregate(errs))
	}
	return api.User{}, false, nil
}

// TryAuthenticate is Authenticate, unless an authenticator that may know the user would have to wait.
func (a *Authn) TryAuthenticate(r *http.Request) (u api.User, ok, waits bool) {
	for _, way := range a.chain {
		nonBlocking, isNonBlocking := way.(api.NonBlockingAuthenticator)
		if !isNonBlocking {
			return api.User{}, false, true
		}
		if u, ok, waits = nonBlocking.TryAuthenticate(r); ok || waits {
			return withAuthenticatedGroup(u), ok, waits
		}
	}
	return api.User{}, false, false
}

// UntilRevoked returns a context that ends when the certificate is revoked that authenticated the user, or the front
// proxy. It limits watches and streams.
func (a *Authn) UntilRevoked(ctx context.Context, r *http.Request, user api.User) (context.Context,
	context.CancelFunc) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ctx, func() {}
	}
	// A front proxy's headers do not say how the proxy was authenticated. So its certificate counts, whatever
	// credential ID the headers have.
	if !isByCertificate(user) && (a.proxies == nil || a.proxies.verify(r.TLS.PeerCertificates) != nil) {
		return ctx, func() {}
	}
	return a.revoked.ContextFor(ctx, r.TLS.PeerCertificates[0])
}

// withAuthenticatedGroup adds the group of all authenticated users.
func withAuthenticatedGroup(u api.User) api.User {
	if u.Name != api.Anonymous && !u.InGroup(api.GroupAuthenticated) {
		u.Groups = append(append([]string(nil), u.Groups...), api.GroupAuthenticated)
	}
	return u
}
