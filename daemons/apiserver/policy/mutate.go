package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/match"
	"clusterctl/daemons/kinds/expression"
)

// mutating is the compiled part that only mutating policies have.
type mutating struct {
	scope       *expression.Scope
	patches     []patch.Patcher
	reevaluates bool // whether the policy is evaluated again after later changes of the object
}

func (r *rule) compileMutating(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) error {
	scope, err := expression.NewScope(spec.ParamKind != nil, true, false)
	if err != nil {
		return err
	}
	for _, v := range spec.Variables {
		if err := scope.Declare(v.Name, v.Expression); err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	r.conditions = newConditions(scope, spec.MatchConditions)
	m := &mutating{scope: scope,
		reevaluates: spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
	for _, one := range spec.Mutations {
		switch {
		case one.JSONPatch != nil:
			m.patches = append(m.patches,
				patch.NewJSONPatcher(scope.Mutation(&patch.JSONPatchCondition{Expression: one.JSONPatch.Expression})))
		case one.ApplyConfiguration != nil:
			m.patches = append(
				m.patches,
				patch.NewApplyConfigurationPatcher(
					scope.Mutation(&patch.ApplyConfigurationCondition{Expression: one.ApplyConfiguration.Expression}),
				),
			)
		}
	}
	r.mutating = m
	return nil
}

// Mutating changes objects as mutating policies define, one after the other in the order of their names.
type Mutating struct{ set }

// NewMutating returns the plugin.
func NewMutating(o Options) *Mutating {
	return &Mutating{set{o: o,
		policies: schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"},
		bindings: schema.GroupResource{
			Group:    admissionregistrationv1.GroupName,
			Resource: "mutatingadmissionpolicybindings",
		},
	}}
}

// roundState is the state that is kept from the first round of policies to the second.
type roundState struct {
	candidates map[string]bool // policies that may be evaluated again, by policy, binding and parameter
	repeats    map[string]bool // those of them that must be
	result     runtime.Object
}

// Admit evaluates the policies that match the original write, even if earlier ones change the object. In the second
// round it evaluates those that allow it again, if the object has changed since. A failing policy does not keep the
// others from being evaluated.
func (p *Mutating) Admit(ctx context.Context, a *api.Admission) error {
	rules := p.rules()
	if len(rules) == 0 || match.Exempt(a) || a.Object == nil || a.Operation == "DELETE" || a.Operation == "CONNECT" {
		return nil
	}
	memory := roundStateOf(a)
	if a.Reinvocation.IsSecond && memory.result != nil && !match.Equal(memory.result, a.Object) {
		for id := range memory.candidates {
			memory.repeats[id] = true
		}
	}
	var calls []matchedWrite
	var wrong denials
	for _, r := range rules {
		err := p.eachMatch(ctx, r, a, func(c matchedWrite, err error) error {
			if err != nil {
				p.addDenial(&wrong, c, err, metav1.StatusReasonForbidden)
			} else {
				calls = append(calls, c)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	requested := false
	for _, c := range calls {
		id := c.id()
		if a.Reinvocation.IsSecond && !memory.repeats[id] {
			continue
		}
		requested = true
		before := a.Object
		failed, err := p.mutate(ctx, c, a)
		if err != nil {
			return err
		}
		for _, one := range failed {
			p.addDenial(&wrong, c, one, metav1.StatusReasonInvalid)
		}
		if !match.Equal(before, a.Object) {
			for other := range memory.candidates {
				memory.repeats[other] = true
			}
			a.Reinvocation.IsNeeded = true
		}
		if c.mutating != nil && c.mutating.reevaluates && !a.Reinvocation.IsSecond {
			memory.candidates[id] = true
		}
		delete(memory.repeats, id)
	}
	if requested {
		memory.result = a.Object.DeepCopyObject()
	}
	return wrong.refusal(a)
}

// id identifies a policy together with a binding and a parameter.
func (c matchedWrite) id() string {
	id := c.name + "/" + c.binding.name
	if m, err := meta.Accessor(c.param); c.param != nil && err == nil {
		id += "/" + m.GetNamespace() + "/" + m.GetName()
	}
	return id
}

// denials collects the failures of mutating policies.
type denials struct {
	causes []metav1.StatusCause
	reason metav1.StatusReason // of the first failure
}

// addDenial adds the failure of a policy, unless its failure policy is to ignore it.
func (p *Mutating) addDenial(d *denials, c matchedWrite, err error, reason metav1.StatusReason) {
	if !c.failsClosed {
		p.o.Log.Warn("a policy failed that may be ignored", "policy", c.name, "err", err)
		return
	}
	sayer := fmt.Sprintf("policy %q", c.name)
	if c.binding != nil {
		sayer = c.messagePrefix("policy")
	}
	if len(d.causes) == 0 {
		d.reason = reason
	}
	d.causes = append(d.causes, metav1.StatusCause{Message: sayer + " denied request: " + err.Error()})
}

// refusal returns an error with all failures and the message of the first; nil if there are none. As in upstream, its
// code is 403 whatever the reason.
func (d denials) refusal(a *api.Admission) error {
	if len(d.causes) == 0 {
		return nil
	}
	err := apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, nil)
	err.ErrStatus.Message, err.ErrStatus.Reason = d.causes[0].Message, d.reason
	err.ErrStatus.Details.Causes = d.causes
	return err
}

func roundStateOf(a *api.Admission) *roundState {
	const key = "mutatingadmissionpolicies"
	if current, ok := a.Reinvocation.Memory[key].(*roundState); ok {
		return current
	}
	if a.Reinvocation.Memory == nil {
		a.Reinvocation.Memory = map[string]any{}
	}
	fresh := &roundState{candidates: map[string]bool{}, repeats: map[string]bool{}}
	a.Reinvocation.Memory[key] = fresh
	return fresh
}

// mutate applies the mutations of one policy, and continues after one that fails. failed holds the failures. err means
// that the result is not a valid object; it fails the write whatever the failure policy is.
func (p *Mutating) mutate(ctx context.Context, c matchedWrite, a *api.Admission) (failed []error, err error) {
	if c.broken != nil {
		return []error{c.broken}, nil
	}
	// Each binding and parameter sees the changes of the earlier ones.
	seen, err := match.Versioned(ctx, a, c.version)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("show the object as %s: %w", c.version.Kind, err))
	}
	c.attributes = seen
	if holds, err := p.conditionsHold(ctx, c); err != nil {
		return []error{err}, nil
	} else if !holds {
		return nil, nil
	}
	types, err := p.o.Types(a)
	if err != nil {
		return []error{err}, nil
	}
	changed := false
	for _, one := range c.mutating.patches {
		made, err := p.applyPatcher(ctx, c, one, types)
		var answer *apierrors.StatusError
		switch {
		case errors.As(err, &answer):
			return nil, answer
		case err != nil:
			failed = append(failed, err)
		case !match.Equal(c.attributes.VersionedObject.Object(), made):
			c.attributes.UpdateObject(made)
			changed = true
		}
	}
	if !changed {
		return failed, nil
	}
	return failed, match.Replace(ctx, a, c.version, c.attributes.VersionedObject.Object())
}

// applyPatcher returns the object after one mutation.
func (p *Mutating) applyPatcher(
	ctx context.Context,
	c matchedWrite,
	one patch.Patcher,
	types managedfields.TypeConverter,
) (runtime.Object, error) {
	// Variables are evaluated again, because they may depend on what has changed.
	made, err := one.Patch(c.mutating.scope.CreateContext(ctx), patch.Request{
		MatchedResource: c.version.Resource, VersionedAttributes: c.attributes,
		ObjectInterfaces: checkedInterfaces{p.o.Interfaces}, OptionalVariables: p.variablesOf(c),
		Namespace: plugincel.CreateNamespaceObject(c.namespace), TypeConverter: types,
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	if checked, ok := made.(*checkedObject); ok {
		made = checked.Object
	}
	// A merge produces an object without a Go type.
	if made, err = match.ConvertLike(made, c.attributes.VersionedObject.Object()); err != nil {
		return nil, err
	}
	made.GetObjectKind().SetGroupVersionKind(c.version.Kind)
	return made, nil
}

// Name implements api.Named.
func (*Mutating) Name() string { return "MutatingAdmissionPolicy" }
