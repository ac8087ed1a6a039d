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
	var concerned []*matchedHook
	for _, h := range hooks {
		w, err := p.matchHook(ctx, h, a)
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
	synchronize(&safe)
	refusals := make([]error, len(concerned))
	var wait sync.WaitGroup
	for i, w := range concerned {
		wait.Go(func() {
			start := time.Now()
			r, err := p.review(ctx, w, &safe, false)
			defer func() { p.o.Counts.recordCall(w, a, false, start, err, refusals[i]) }()
			switch {
			case err != nil:
				refusals[i] = p.failureError(ctx, w.hook, &safe, "validating", 0, i, err)
			case !r.Allowed:
				refusals[i] = deniedError(w.name, r.Result)
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

// synchronizedOrigin is an origin that concurrent webhooks may annotate.
type synchronizedOrigin struct {
	api.Origin
	mu *sync.Mutex
}

// Annotate implements api.Origin.
func (g *synchronizedOrigin) Annotate(key, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Origin.Annotate(key, value)
}

// synchronize makes warnings and annotations safe for concurrent webhooks.
func synchronize(a *api.Admission) {
	var mu sync.Mutex
	if warn := a.Warn; warn != nil {
		a.Warn = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			warn(text)
		}
	}
	if a.Origin != nil {
		a.Origin = &synchronizedOrigin{Origin: a.Origin, mu: &mu}
	}
}

// Name implements api.Named.
func (*Validating) Name() string { return "ValidatingAdmissionWebhook" }

// CallsExternal implements api.Outside.
func (*Validating) CallsExternal() {}
