package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/settings"
)

// modeWebhook is the type of webhook authorizers; a configuration may have several.
const modeWebhook = "Webhook"

// Configured calls the authorizers of an AuthorizationConfiguration of apiserver.config.k8s.io in its order, after the
// one for system:masters. The caller of the server runs it, too.
type Configured struct {
	*settings.File[Chain]
}

// OpenConfigured reads the AuthorizationConfiguration in file. A nil now means time.Now.
func OpenConfigured(file string, objects api.Objects, now func() time.Time, log *slog.Logger) (*Configured, error) {
	if now == nil {
		now = time.Now
	}
	// These authorizers are kept across reloads, because they have built up caches.
	own := map[string]api.Authorizer{}
	f, err := settings.Open(
		"authorization configuration",
		file,
		func(text []byte, other func(string) ([]byte, error)) (Chain, error) {
			return parseConfiguration(text, other, own, objects, now)
		},
		log,
	)
	return &Configured{f}, err
}

// Authorize calls the authorizers of the current configuration.
func (c *Configured) Authorize(ctx context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	return c.Get().Authorize(ctx, u, r)
}

// TryAuthorize is Authorize, unless an authorizer would have to wait.
func (c *Configured) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	return c.Get().TryAuthorize(u, r)
}

func parseConfiguration(
	text []byte,
	other func(path string) ([]byte, error),
	own map[string]api.Authorizer,
	objects api.Objects,
	now func() time.Time,
) (Chain, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*apiserver.AuthorizationConfiguration)
	if !ok {
		return nil, errors.New("it is not an AuthorizationConfiguration")
	}
	compiler := authorizationcel.NewDefaultCompiler()
	modes := sets.New("Node", "RBAC", "AlwaysAllow", "AlwaysDeny", modeWebhook)
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, c, modes,
		sets.New(modeWebhook)).ToAggregate(); err != nil {
		return nil, err
	}
	chain := Chain{mastersGroup{}}
	for _, a := range c.Authorizers {
		if a.Type != modeWebhook {
			if own[string(a.Type)] == nil {
				made, err := newMode(string(a.Type), objects)
				if err != nil {
					return nil, err
				}
				own[string(a.Type)] = made
			}
			chain = append(chain, own[string(a.Type)])
			continue
		}
		var matcher *authorizationcel.CELMatcher
		if len(a.Webhook.MatchConditions) > 0 {
			compiled, errs := validation.ValidateAndCompileMatchConditions(compiler, a.Webhook.MatchConditions)
			if err := errs.ToAggregate(); err != nil {
				return nil, fmt.Errorf("authorizer %s: %w", a.Name, err)
			}
			matcher = compiled
		}
		hook, err := newWebhook(a.Name, a.Webhook, matcher, other, now)
		if err != nil {
			return nil, err
		}
		chain = append(chain, hook)
	}
	return chain, nil
}
