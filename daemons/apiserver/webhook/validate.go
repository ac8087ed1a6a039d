package webhook

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/match"
)

const admissionGroup = "admissionregistration.k8s.io"

// Validating refuses writes that a validating webhook refuses.
type Validating struct{ set }

// NewValidating returns the plugin.
func NewValidating(o Options) *Validating {
	return &Validating{
		set{o: o, resource: schema.GroupResource{Group: admissionGroup, Resource: "validatingwebhookconfigurations"}},
	}
}

// Validate calls all webhooks that match, concurrently. It returns the refusal of the first in order that refuses.
func (p *Validating) Validate(ctx context.Context, a *api.Admission) error {
	hooks := p.hooks()
	if len(hooks) == 0 || match.Exempt(a) {
		return nil
	}
	var concerned []*asked
	for _, h := range hooks {
		w, err := p.concerns(ctx, h, a)
		if err != nil {
			return err
		}
		if w != nil {
			concerned = append(concerned, w)
		}
	}
	if len(concerned) == 0 {
		return nil
	}
	safe := *a
	guard(&safe)
	refusals := make([]error, len(concerned))
	var wait sync.WaitGroup
	for i, w := range concerned {
		wait.Go(func() {
			began := time.Now()
			r, err := p.ask(ctx, w, &safe, false)
			defer func() { p.o.Counts.called(w, a, false, began, err, refusals[i]) }()
			switch {
			case err != nil:
				refusals[i] = p.failed(ctx, w.hook, &safe, "validating", 0, i, err)
			case !r.Allowed:
				refusals[i] = denied(w.name, r.Result)
			}
		})
	}
	wait.Wait()
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

// guarded is an origin that concurrent webhooks may annotate.
type guarded struct {
	api.Origin
	mu *sync.Mutex
}

// Annotate implements api.Origin.
func (g *guarded) Annotate(key, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Origin.Annotate(key, value)
}

// guard makes warnings and annotations safe for concurrent webhooks.
func guard(a *api.Admission) {
	var mu sync.Mutex
	if warn := a.Warn; warn != nil {
		a.Warn = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			warn(text)
		}
	}
	if a.Origin != nil {
		a.Origin = &guarded{Origin: a.Origin, mu: &mu}
	}
}

// Name implements api.Named.
func (*Validating) Name() string { return "ValidatingAdmissionWebhook" }

// AsksOutside implements api.Outside.
func (*Validating) AsksOutside() {}
