package authn

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"clusterctl/daemons/api"
)

// externalIssuer authenticates users by the tokens of one external issuer of an AuthenticationConfiguration.
type externalIssuer struct {
	cfg       apiserver.JWTAuthenticator
	issuer    *issuer
	mapping   mapping
	audiences []string // the audiences of this server
	now       func() time.Time
}

func newExternalIssuer(
	compiler authenticationcel.Compiler,
	cfg apiserver.JWTAuthenticator,
	own string,
	audiences []string,
	now func() time.Time,
) (*externalIssuer, error) {
	compiled, errs := validation.CompileAndValidateJWTAuthenticator(compiler, cfg, []string{own})
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", cfg.Issuer.URL, err)
	}
	if cfg.Issuer.EgressSelectorType != "" {
		return nil, fmt.Errorf("issuer %s: there are no egress selectors here: leave egressSelectorType out",
			cfg.Issuer.URL)
	}
	i, err := newIssuer(cfg.Issuer.URL, cfg.Issuer.DiscoveryURL, cfg.Issuer.CertificateAuthority, now)
	if err != nil {
		return nil, err
	}
	return &externalIssuer{cfg: cfg, issuer: i, mapping: mapping{cfg, compiled}, audiences: audiences, now: now}, nil
}

// algorithms are the accepted signature algorithms of issuers. Those with a shared secret are not accepted.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
}

func (e *externalIssuer) verify(ctx context.Context, token string, wanted []string) (api.User, []string, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return api.User{}, nil, errOtherToken
	}
	var standard jwt.Claims
	if parsed.UnsafeClaimsWithoutVerification(&standard) != nil || standard.Issuer != e.cfg.Issuer.URL {
		return api.User{}, nil, errOtherToken
	}
	keys, err := e.issuer.keysFor(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return api.User{}, nil, fmt.Errorf("%w: %w", errInvalidToken, err)
	}
	raw, err := signedBy(parsed, keys)
	if err != nil {
		return api.User{}, nil, err
	}
	if err := json.Unmarshal(raw, &standard); err != nil {
		return api.User{}, nil, fmt.Errorf("%w: read its claims: %w", errInvalidToken, err)
	}
	now := e.now()
	if standard.Expiry == nil || !now.Before(standard.Expiry.Time()) ||
		standard.NotBefore != nil && now.Add(jwt.DefaultLeeway).Before(standard.NotBefore.Time()) {
		return api.User{}, nil, fmt.Errorf("%w: %w", errInvalidToken, errExpired)
	}
	if !slices.ContainsFunc(e.cfg.Issuer.Audiences, standard.Audience.Contains) {
		return api.User{}, nil, fmt.Errorf("%w: expected audience in %q got %q", errInvalidToken,
			e.cfg.Issuer.Audiences, []string(standard.Audience))
	}
	claims := map[string]any{}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return api.User{}, nil, fmt.Errorf("%w: read its claims: %w", errInvalidToken, err)
	}
	user, err := e.mapping.user(ctx, claims)
	if err != nil {
		return api.User{}, nil, fmt.Errorf("%w: %w", errInvalidToken, err)
	}
	audiences, err := audiencesOf(e.audiences, wanted, e.audiences)
	return user, audiences, err
}

// signedBy returns the claims if one of the keys has signed the token.
func signedBy(token *jwt.JSONWebToken, keys []jose.JSONWebKey) ([]byte, error) {
	for _, k := range keys {
		var raw json.RawMessage
		if token.Claims(k.Public().Key, &raw) == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("%w: no key of its issuer has signed it", errInvalidToken)
}
