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

// roundState is the state that is kept from the first round of webhooks to the second.
type roundState struct {
	candidates map[string]bool // webhooks that may be called again, by id
	repeats    map[string]bool // those of them that must be, because the object has changed since
	result     runtime.Object  // the object after the last webhook
}

// Admit calls the webhooks that match. In the second round it calls those that allow it again, if the object has
// changed since their last call.
func (p *Mutating) Admit(ctx context.Context, a *api.Admission) error {
	hooks := p.hooks()
	if len(hooks) == 0 || match.Exempt(a) {
		return nil
	}
	memory := p.roundStateOf(a)
	if a.Reinvocation.IsSecond && memory.result != nil && !match.Equal(memory.result, a.Object) {
		// Other plugins have changed it since the last webhook.
		for id := range memory.candidates {
			memory.repeats[id] = true
		}
	}
	round, requested := 0, false
	if a.Reinvocation.IsSecond {
		round = 1
	}
	for i, h := range hooks {
		if round == 1 && !memory.repeats[h.id] {
			continue
		}
		w, err := p.matchHook(ctx, h, a)
		if err != nil {
			return err
		}
		if w == nil {
			continue
		}
		requested = true
		changed, err := p.callWebhook(ctx, w, a, round, i)
		if err != nil {
			return err
		}
		if changed {
			for id := range memory.candidates {
				memory.repeats[id] = true
			}
			a.Reinvocation.IsNeeded = true
		}
		if h.reinvokes && round == 0 {
			memory.candidates[h.id] = true
		}
		delete(memory.repeats, h.id)
	}
	if requested && a.Object != nil {
		memory.result = a.Object.DeepCopyObject()
	}
	return nil
}

func (p *Mutating) roundStateOf(a *api.Admission) *roundState {
	if current, ok := a.Reinvocation.Memory[p.resource.Resource].(*roundState); ok {
		return current
	}
	fresh := &roundState{candidates: map[string]bool{}, repeats: map[string]bool{}}
	if a.Reinvocation.Memory == nil {
		a.Reinvocation.Memory = map[string]any{}
	}
	a.Reinvocation.Memory[p.resource.Resource] = fresh
	return fresh
}

// callWebhook calls one webhook and applies its response. changed reports whether the object has changed.
func (p *Mutating) callWebhook(ctx context.Context, w *matchedHook, a *api.Admission, round, index int) (changed bool,
	err error) {
	n := auditNotes{a, w.hook, fmt.Sprintf("round_%d_index_%d", round, index)}
	start, failure := time.Now(), error(nil)
	defer func() {
		n.recordMutated(changed)
		p.o.Counts.recordCall(w, a, true, start, failure, err)
	}()
	r, failure := p.review(ctx, w, a, true)
	if err = failure; err != nil {
		return false, p.failureError(ctx, w.hook, a, "mutation", round, index, err)
	}
	if !r.Allowed {
		return false, deniedError(w.name, r.Result)
	}
	if len(r.Patch) == 0 {
		return false, nil
	}
	operations, err := jsonpatch.Decode(r.Patch)
	if err != nil {
		err = fmt.Errorf("received undecodable patch in webhook response: %w", err)
		failure = err
		return false, p.failureError(ctx, w.hook, a, "mutation", round, index, err)
	}
	if len(operations) == 0 {
		return false, nil
	}
	before := w.attributes.VersionedObject.Object()
	if before == nil {
		return false, apierrors.NewInternalError(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", w.name))
	}
	if r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch && w.hook.version == "v1" {
		return false, p.failureError(ctx, w.hook, a, "mutation", round, index,
			fmt.Errorf("unsupported patch type %q", *r.PatchType))
	}
	after, err := applyPatch(before, operations)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	n.recordPatch(operations)
	if match.Equal(before, after) {
		return false, nil
	}
	return true, match.Replace(ctx, a, w.version, after)
}

// applyPatch returns an object after a JSON patch.
func applyPatch(before runtime.Object, operations jsonpatch.Patch) (runtime.Object, error) {
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

// CallsExternal implements api.Outside.
func (*Mutating) CallsExternal() {}
