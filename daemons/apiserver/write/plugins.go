package write

import (
	"slices"

	"k8s.io/apiserver/pkg/admission"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/policy"
	"clusterctl/daemons/apiserver/webhook"
)

// plugins are the admission plugins, in the order in which they run.
type plugins struct {
	mutators   []api.Mutator
	validators []api.Validator
	external   externalPlugins
}

// externalPlugins are the plugins that evaluate policies or call webhooks. They also see what is sent to subresources,
// and connect requests.
type externalPlugins struct {
	mutators   []api.Mutator
	validators []api.Validator
}

// newPlugins returns the admission plugins of the configuration and, if it selects them, those that the cluster's
// objects configure. The quota is last: what it has counted is not refused afterwards.
func (s *Writes) newPlugins() plugins {
	c := &s.config
	var quota []api.Validator
	if c.Quota != nil {
		quota = []api.Validator{c.Quota}
	}
	if c.External == nil {
		return plugins{mutators: c.Mutators, validators: slices.Concat(c.Validators, quota)}
	}
	objects, may := c.Cache.Objects(), c.External.Authorizer
	hooks := webhook.Options{Objects: objects, May: may, Connector: c.Backends, Log: c.Log, Counts: c.Webhooks}
	policies := policy.Options{
		Objects: objects, May: may, Params: policyParams{s}, Log: c.Log,
		Interfaces: admission.NewObjectInterfacesFromScheme(c.Scheme), Types: s.typeConverterOf,
	}
	external := externalPlugins{
		mutators:   []api.Mutator{policy.NewMutating(policies), webhook.NewMutating(hooks)},
		validators: []api.Validator{policy.NewValidating(policies), webhook.NewValidating(hooks)},
	}
	return plugins{
		mutators: slices.Concat(c.Mutators, external.mutators),
		validators: slices.Concat(c.Validators, []api.Validator{policy.NewAccess(policies)}, external.validators,
			quota),
		external: external,
	}
}
