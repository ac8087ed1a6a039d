package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/jsonpatch"
	"clusterctl/daemons/apiserver/match"
)

// Mutating changes objects as mutating webhooks respond, one webhook after the other.
type Mutating struct{ set }

// NewMutating returns the plugin.
func NewMutating(o Options) *Mutating {
	return &Mutating{
		set{o: o, resource: schema.GroupResource{Group: admissionGroup, Resource: "mutatingwebhookconfigurations"}},
	}
}

// rounds is the state that is kept from the first round of webhooks to the second.
type rounds struct {
	asked map[string]bool // webhooks that may be called again, by id
	again map[string]bool // those of them that must be, because the object has changed since
	left  runtime.Object  // the object after the last webhook
}

// Admit calls the webhooks that match. In the second round it calls those that allow it again, if the object has
// changed since their last call.
func (p *Mutating) Admit(ctx context.Context, a *api.Admission) error {
	hooks := p.hooks()
	if len(hooks) == 0 || match.Exempt(a) {
		return nil
	}
	memory := p.remember(a)
	if a.Again.Second && memory.left != nil && !match.Same(memory.left, a.Object) {
		// Other plugins have changed it since the last webhook.
		for id := range memory.asked {
			memory.again[id] = true
		}
	}
	round, asked := 0, false
	if a.Again.Second {
		round = 1
	}
	for i, h := range hooks {
		if round == 1 && !memory.again[h.id] {
			continue
		}
		w, err := p.concerns(ctx, h, a)
		if err != nil {
			return err
		}
		if w == nil {
			continue
		}
		asked = true
		changed, err := p.put(ctx, w, a, round, i)
		if err != nil {
			return err
		}
		if changed {
			for id := range memory.asked {
				memory.again[id] = true
			}
			a.Again.Wanted = true
		}
		if h.again && round == 0 {
			memory.asked[h.id] = true
		}
		delete(memory.again, h.id)
	}
	if asked && a.Object != nil {
		memory.left = a.Object.DeepCopyObject()
	}
	return nil
}

func (p *Mutating) remember(a *api.Admission) *rounds {
	if have, ok := a.Again.Memory[p.resource.Resource].(*rounds); ok {
		return have
	}
	fresh := &rounds{asked: map[string]bool{}, again: map[string]bool{}}
	if a.Again.Memory == nil {
		a.Again.Memory = map[string]any{}
	}
	a.Again.Memory[p.resource.Resource] = fresh
	return fresh
}

// put calls one webhook and applies its response. changed reports whether the object has changed.
func (p *Mutating) put(ctx context.Context, w *asked, a *api.Admission, round, index int) (changed bool, err error) {
	n := notes{a, w.hook, fmt.Sprintf("round_%d_index_%d", round, index)}
	began, failure := time.Now(), error(nil)
	defer func() {
		n.mutated(changed)
		p.o.Counts.called(w, a, true, began, failure, err)
	}()
	r, failure := p.ask(ctx, w, a, true)
	if err = failure; err != nil {
		return false, p.failed(ctx, w.hook, a, "mutation", round, index, err)
	}
	if !r.Allowed {
		return false, denied(w.name, r.Result)
	}
	if len(r.Patch) == 0 {
		return false, nil
	}
	operations, err := jsonpatch.Decode(r.Patch)
	if err != nil {
		err = fmt.Errorf("received undecodable patch in webhook response: %w", err)
		failure = err
		return false, p.failed(ctx, w.hook, a, "mutation", round, index, err)
	}
	if len(operations) == 0 {
		return false, nil
	}
	before := w.seen.VersionedObject.Object()
	if before == nil {
		return false, apierrors.NewInternalError(
			fmt.Errorf(
				"admission webhook %q attempted to modify the object, which is not supported for this operation",
				w.name,
			),
		)
	}
	if r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch && w.hook.version == "v1" {
		return false, p.failed(
			ctx,
			w.hook,
			a,
			"mutation",
			round,
			index,
			fmt.Errorf("unsupported patch type %q", *r.PatchType),
		)
	}
	after, err := patched(before, operations)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	n.patched(operations)
	if match.Same(before, after) {
		return false, nil
	}
	return true, match.Replace(ctx, a, w.version, after)
}

// patched returns an object after a JSON patch.
func patched(before runtime.Object, operations jsonpatch.Patch) (runtime.Object, error) {
	data, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	if data, err = jsonpatch.Apply(operations, data); err != nil {
		return nil, err
	}
	after, err := match.Decode(data, before)
	if err != nil {
		return nil, err
	}
	if _, ok := after.(*unstructured.Unstructured); !ok {
		after.GetObjectKind().SetGroupVersionKind(before.GetObjectKind().GroupVersionKind())
	}
	return after, nil
}

// Name implements api.Named.
func (*Mutating) Name() string { return "MutatingAdmissionWebhook" }

// AsksOutside implements api.Outside.
func (*Mutating) AsksOutside() {}
