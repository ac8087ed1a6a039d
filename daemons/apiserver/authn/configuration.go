package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/settings"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kinds/expression"
)

// configuration is the content of an AuthenticationConfiguration.
type configuration struct {
	issuers   bearer
	anonymous Anonymous
}

// parseConfiguration reads an AuthenticationConfiguration of apiserver.config.k8s.io, in any of its versions.
func parseConfiguration(cfg config.APIServer, text []byte, audiences []string, now func() time.Time) (c configuration,
	err error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return c, err
	}
	loaded, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return c, fmt.Errorf("it is a %s", obj.GetObjectKind().GroupVersionKind().Kind)
	}
	c.anonymous = newAnonymous(cfg.AnonymousAuth, loaded)
	c.issuers.verifiers, err = newExternalIssuers(loaded, cfg.ServiceAccountIssuer, audiences, now)
	return c, err
}

// issuers authenticates by the issuers of the current configuration.
type issuers struct {
	file *settings.File[configuration]
}

func (i issuers) verify(ctx context.Context, token string, wanted []string) (api.User, []string, error) {
	now := i.file.Get().issuers
	if len(now.verifiers) == 0 {
		return api.User{}, nil, errOtherToken
	}
	return now.verify(ctx, token, wanted)
}

// newExternalIssuers returns the issuers of a configuration.
func newExternalIssuers(
	c *apiserver.AuthenticationConfiguration,
	own string,
	audiences []string,
	now func() time.Time,
) (ways []tokenVerifier, err error) {
	if len(c.JWT) == 0 {
		return nil, nil
	}
	compiler := authenticationcel.NewCompiler(expression.Environment())
	var errs []error
	seen := map[string]bool{}
	for _, j := range c.JWT {
		e, err := newExternalIssuer(compiler, j, own, audiences, now)
		if err == nil && seen[j.Issuer.URL] {
			err = fmt.Errorf("issuer %s is named twice", j.Issuer.URL)
		}
		if seen[j.Issuer.URL] = true; err != nil {
			errs = append(errs, err)
			continue
		}
		ways = append(ways, e)
	}
	return ways, errors.Join(errs...)
}

// Anonymous decides which paths need no credentials. These are the health checks, unless an AuthenticationConfiguration
// sets others.
type Anonymous struct {
	Enabled      bool
	paths        []string
	isConfigured bool
}

func newAnonymous(enabled bool, c *apiserver.AuthenticationConfiguration) Anonymous {
	if c == nil || c.Anonymous == nil {
		return Anonymous{Enabled: enabled}
	}
	a := Anonymous{Enabled: c.Anonymous.Enabled, isConfigured: true}
	for _, condition := range c.Anonymous.Conditions {
		a.paths = append(a.paths, condition.Path)
	}
	return a
}

// Allows reports whether a path is open to requests without credentials. isDefault is true for the paths that are open
// by default.
func (a Anonymous) Allows(path string, isDefault bool) bool {
	if !a.isConfigured {
		return a.Enabled && isDefault
	}
	return a.Enabled && (len(a.paths) == 0 || slices.Contains(a.paths, path))
}
