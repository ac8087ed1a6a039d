package authz

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"clusterctl/daemons/api"
)

// modeWebhook is the type of authorizers that are other servers; there may be several.
const modeWebhook = "Webhook"

// Configured returns the authorizers that an AuthorizationConfiguration of
// apiserver.config.k8s.io names, in its order, after the one for system:masters.
func Configured(file string, objects api.Objects, now func() time.Time) (api.Authorizer, error) {
	chain, err := configured(file, objects, now)
	if err != nil {
		return nil, fmt.Errorf("read the authorization configuration %s: %w", file, err)
	}
	return chain, nil
}

func configured(file string, objects api.Objects, now func() time.Time) (Chain, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*apiserver.AuthorizationConfiguration)
	if !ok {
		return nil, errors.New("it is no AuthorizationConfiguration")
	}
	compiler := authorizationcel.NewDefaultCompiler()
	known := sets.New("Node", "RBAC", "AlwaysAllow", "AlwaysDeny", modeWebhook)
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, c, known, sets.New(modeWebhook)).ToAggregate(); err != nil {
		return nil, err
	}
	chain := Chain{masters{}}
	for _, a := range c.Authorizers {
		if a.Type != modeWebhook {
			own, err := mode(string(a.Type), objects)
			if err != nil {
				return nil, err
			}
			chain = append(chain, own)
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
		hook, err := newWebhook(a.Name, a.Webhook, matcher, now)
		if err != nil {
			return nil, err
		}
		chain = append(chain, hook)
	}
	return chain, nil
}
