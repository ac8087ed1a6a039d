// Package authn tells who sent a request to the API server: client certificates, front
// proxies that vouch for others, and tokens, of service accounts, of machines that join, of
// somebody else's issuers, and those that a webhook knows. It issues
// service-account tokens, too, since whoever signs must know what will be believed.
// What the user may do is package authz'.
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

// Authn is the API server's ways to know users.
type Authn struct {
	// File is the AuthenticationConfiguration; nil: there is none. Who runs the server runs it, too.
	File *settings.File[configured]
	// Webhook is the kubeconfig of the token webhook, as File.
	Webhook *settings.File[*remote.Server]

	chain     []api.Authenticator
	bearer    *bearer
	anonymous Anonymous    // without a configuration
	proxies   *pool        // authorities of front proxies; nil: there are none
	revoked   *run.Revoked // client certificates; nil: there are none
	tokens    *Tokens      // nil: no service-account keys were given
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
		pool, err := newPool(cfg.RequestheaderClientCAFile, now)
		if err != nil {
			return nil, err
		}
		a.proxies = pool
		a.chain = append(a.chain, &frontProxy{pool: pool, revoked: a.revoked, names: cfg.RequestheaderAllowedNames})
	}
	if cfg.ClientCAFile != "" {
		pool, err := newPool(cfg.ClientCAFile, now)
		if err != nil {
			return nil, err
		}
		a.chain = append(a.chain, &clientCert{pool: pool, revoked: a.revoked})
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

// addTokens adds the ways to know users by tokens, this cluster's own first.
func (a *Authn) addTokens(cfg config.APIServer, objects api.Objects, now func() time.Time, log *slog.Logger) error {
	audiences := cfg.APIAudiences
	if len(audiences) == 0 {
		audiences = []string{cfg.ServiceAccountIssuer}
	}
	a.bearer = &bearer{}
	if a.tokens != nil {
		a.bearer.ways = append(a.bearer.ways, a.tokens)
	}
	if cfg.EnableBootstrapTokenAuth {
		a.bearer.ways = append(a.bearer.ways, &bootstrap{objects, audiences, now})
	}
	a.anonymous = newAnonymous(cfg.AnonymousAuth, nil)
	if cfg.AuthenticationConfig != "" {
		file, err := settings.Open(
			"authentication configuration",
			cfg.AuthenticationConfig,
			func(text []byte, _ func(string) ([]byte, error)) (configured, error) {
				return configure(cfg, text, audiences, now)
			},
			log,
		)
		if err != nil {
			return err
		}
		a.File = file
		a.bearer.ways = append(a.bearer.ways, issuers{file})
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
		a.bearer.ways = append(
			a.bearer.ways,
			&webhook{server: file, audiences: audiences, ttl: cfg.AuthenticationTokenWebhookCacheTTL, now: now},
		)
	}
	if len(a.bearer.ways) > 0 {
		a.chain = append(a.chain, a.bearer)
	}
	return nil
}

// webhookTimeout bounds one question to the token webhook.
const webhookTimeout = 10 * time.Second

// Verify says whose token it is, and for which of the wanted audiences.
func (a *Authn) Verify(ctx context.Context, token string, audiences []string) (api.User, []string, error) {
	return a.bearer.verify(ctx, token, audiences)
}

// Anonymous says whether somebody without credentials may ask for a path at all. usual says that
// it is one of those that everybody may.
func (a *Authn) Anonymous(path string, usual bool) bool {
	if a.File != nil {
		return a.File.Get().anonymous.May(path, usual)
	}
	return a.anonymous.May(path, usual)
}

// Tokens are the service-account tokens; nil when no keys were given.
func (a *Authn) Tokens() *Tokens { return a.tokens }

// Authenticate asks each way in turn. The first that knows the user decides; when
// none does, all that went wrong is returned.
func (a *Authn) Authenticate(r *http.Request) (api.User, bool, error) {
	var errs []error
	for _, way := range a.chain {
		user, ok, err := way.Authenticate(r)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			return authenticated(user), true, nil
		}
	}
	if len(errs) > 0 {
		return api.User{}, false, fmt.Errorf("authenticate: %w", utilerrors.NewAggregate(errs))
	}
	return api.User{}, false, nil
}

// AuthenticatePromptly is Authenticate where no way that has something to say must wait.
func (a *Authn) AuthenticatePromptly(r *http.Request) (u api.User, ok, waits bool) {
	for _, way := range a.chain {
		prompt, can := way.(api.PromptAuthenticator)
		if !can {
			return api.User{}, false, true
		}
		if u, ok, waits = prompt.AuthenticatePromptly(r); ok || waits {
			return authenticated(u), ok, waits
		}
	}
	return api.User{}, false, false
}

// While returns a context that ends when the certificate is revoked that a user was known by, or that a front proxy
// vouched for him with: what a watch or a stream lasts for at most.
func (a *Authn) While(ctx context.Context, r *http.Request, user api.User) (context.Context, context.CancelFunc) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ctx, func() {}
	}
	// What a proxy says of the user says nothing about how the proxy was known. So its certificate counts on whatever
	// it brings.
	if !byCertificate(user) && (a.proxies == nil || a.proxies.verify(r.TLS.PeerCertificates) != nil) {
		return ctx, func() {}
	}
	return a.revoked.While(ctx, r.TLS.PeerCertificates[0])
}

// authenticated adds the group that everyone belongs to who is known.
func authenticated(u api.User) api.User {
	if u.Name != api.Anonymous && !u.InGroup(api.GroupAuthenticated) {
		u.Groups = append(append([]string(nil), u.Groups...), api.GroupAuthenticated)
	}
	return u
}
