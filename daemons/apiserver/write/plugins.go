package write

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/policy"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/webhook"
)

// Admitter runs the admission plugins, and measures them.
type Admitter struct {
	cache    *cache.Cache
	all      pluginSet
	external pluginSet // policies and webhooks, which also see what is sent to subresources, and connect requests
	metrics  admissionMetrics
}

// newAdmitter returns an Admitter with the plugins that c configures.
func newAdmitter(c *Config, s Server) *Admitter {
	p := &Admitter{cache: c.Cache}
	p.metrics.init()
	p.all, p.external = newPlugins(c, s)
	return p
}

// pluginSet is a set of admission plugins, in the order in which they run.
type pluginSet struct {
	mutators   []api.Mutator
	validators []api.Validator
}

// newPlugins returns the admission plugins of the configuration and, if it selects them, those that the cluster's
// objects configure. The quota is last: what it has counted is not refused afterwards.
func newPlugins(c *Config, s Server) (all, external pluginSet) {
	var quota []api.Validator
	if c.Quota != nil {
		quota = []api.Validator{c.Quota}
	}
	if c.External == nil {
		return pluginSet{mutators: c.Mutators, validators: slices.Concat(c.Validators, quota)}, external
	}
	objects, authorizer := c.Cache.Objects(), c.External.Authorizer
	hooks := webhook.Options{Objects: objects, May: authorizer, Connector: c.Backends, Log: c.Log, Counts: c.Webhooks}
	policies := policy.Options{
		Objects: objects, May: authorizer, Params: policyParams{s, c.Cache}, Log: c.Log,
		Interfaces: admission.NewObjectInterfacesFromScheme(c.Scheme),
		Types:      func(a *api.Admission) (managedfields.TypeConverter, error) { return typeConverterOf(c.Owners, a) },
	}
	external = pluginSet{
		mutators:   []api.Mutator{policy.NewMutating(policies), webhook.NewMutating(hooks)},
		validators: []api.Validator{policy.NewValidating(policies), webhook.NewValidating(hooks)},
	}
	all = pluginSet{
		mutators: slices.Concat(c.Mutators, external.mutators),
		validators: slices.Concat(c.Validators, []api.Validator{policy.NewAccess(policies)}, external.validators,
			quota),
	}
	return all, external
}

// Metrics returns the metrics of admission.
func (p *Admitter) Metrics() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.steps, p.metrics.plugins}
}

// HasExternalPlugins reports whether policies or webhooks may see a request.
func (p *Admitter) HasExternalPlugins() bool {
	return len(p.external.validators) > 0 || len(p.external.mutators) > 0
}

// runMutators calls mutating plugins. It calls them a second time if one of them changed an object that earlier plugins
// had seen.
func (p *Admitter) runMutators(ctx context.Context, plugins pluginSet, a *api.Admission) error {
	if err := rejectIfUnreadable(p.cache, a); err != nil {
		return err
	}
	t := p.metrics.startStep(a, "admit")
	for {
		for _, plugin := range plugins.mutators {
			if err := t.recordPlugin(plugin, plugin.Admit(ctx, a)); err != nil {
				return err
			}
		}
		if a.Reinvocation.IsSecond || !a.Reinvocation.IsNeeded {
			t.end(nil)
			return nil
		}
		a.Reinvocation.IsSecond = true
	}
}

// runValidators calls validating plugins.
func (p *Admitter) runValidators(ctx context.Context, plugins pluginSet, a *api.Admission) error {
	t := p.metrics.startStep(a, "validate")
	for _, plugin := range plugins.validators {
		if err := t.recordPlugin(plugin, plugin.Validate(ctx, a)); err != nil {
			return err
		}
	}
	t.end(nil)
	return nil
}

// AdmitSubresource passes the object that was sent to a subresource to webhooks and policies. They see that object, not
// the object that the subresource changes.
func (p *Admitter) AdmitSubresource(
	q *request.Request,
	operation string,
	kind schema.GroupVersionKind,
	obj runtime.Object,
	dryRun bool,
) error {
	return p.admitSubresourceWith(p.external, q, operation, kind, obj, dryRun)
}

// admitSubresourceWith is AdmitSubresource with the given validating plugins.
func (p *Admitter) admitSubresourceWith(
	validators pluginSet,
	q *request.Request,
	operation string,
	kind schema.GroupVersionKind,
	obj runtime.Object,
	dryRun bool,
) error {
	a := &api.Admission{
		Operation: operation, User: q.User, Kind: kind, Resource: q.Served.Name(), Subresource: q.Subresource,
		Namespace: q.Namespace, Name: q.Name, Object: obj, DryRun: dryRun, Warn: q.Answer.Warn,
		Origin: &origin{q: q, operation: operation, dryRun: dryRun},
	}
	if err := p.runMutators(q.HTTP.Context(), p.external, a); err != nil {
		return err
	}
	q.Answer.IsAdmitted = true
	return p.runValidators(q.HTTP.Context(), validators, a)
}
