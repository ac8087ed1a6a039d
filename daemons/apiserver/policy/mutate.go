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
	scope   *expression.Scope
	patches []patch.Patcher
	again   bool // whether the policy is evaluated again after later changes of the object
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
	r.conditions = conditions(scope, spec.MatchConditions)
	m := &mutating{scope: scope, again: spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
	for _, one := range spec.Mutations {
		switch {
		case one.JSONPatch != nil:
			m.patches = append(
				m.patches,
				patch.NewJSONPatcher(scope.Mutation(&patch.JSONPatchCondition{Expression: one.JSONPatch.Expression})),
			)
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

// rounds is the state that is kept from the first round of policies to the second.
type rounds struct {
	asked map[string]bool // policies that may be evaluated again, by policy, binding and parameter
	again map[string]bool // those of them that must be
	left  runtime.Object
}

// Admit evaluates the policies that match the original write, even if earlier ones change the object. In the second
// round it evaluates those that allow it again, if the object has changed since. A failing policy does not keep the
// others from being evaluated.
func (p *Mutating) Admit(ctx context.Context, a *api.Admission) error {
	rules := p.rules()
	if len(rules) == 0 || match.Exempt(a) || a.Object == nil || a.Operation == "DELETE" || a.Operation == "CONNECT" {
		return nil
	}
	memory := remember(a)
	if a.Again.Second && memory.left != nil && !match.Same(memory.left, a.Object) {
		for id := range memory.asked {
			memory.again[id] = true
		}
	}
	var calls []about
	var wrong denials
	for _, r := range rules {
		err := p.concerned(ctx, r, a, func(c about, err error) error {
			if err != nil {
				p.against(&wrong, c, err, metav1.StatusReasonForbidden)
			} else {
				calls = append(calls, c)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	asked := false
	for _, c := range calls {
		id := c.id()
		if a.Again.Second && !memory.again[id] {
			continue
		}
		asked = true
		before := a.Object
		failed, err := p.change(ctx, c, a)
		if err != nil {
			return err
		}
		for _, one := range failed {
			p.against(&wrong, c, one, metav1.StatusReasonInvalid)
		}
		if !match.Same(before, a.Object) {
			for other := range memory.asked {
				memory.again[other] = true
			}
			a.Again.Wanted = true
		}
		if c.mutating != nil && c.mutating.again && !a.Again.Second {
			memory.asked[id] = true
		}
		delete(memory.again, id)
	}
	if asked {
		memory.left = a.Object.DeepCopyObject()
	}
	return wrong.refusal(a)
}

// id identifies a policy together with a binding and a parameter.
func (c about) id() string {
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

// against adds the failure of a policy, unless its failure policy is to ignore it.
func (p *Mutating) against(d *denials, c about, err error, reason metav1.StatusReason) {
	if !c.fail {
		p.o.Log.Warn("a policy failed that may be ignored", "policy", c.name, "err", err)
		return
	}
	sayer := fmt.Sprintf("policy %q", c.name)
	if c.binding != nil {
		sayer = c.sayer("policy")
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

func remember(a *api.Admission) *rounds {
	const key = "mutatingadmissionpolicies"
	if have, ok := a.Again.Memory[key].(*rounds); ok {
		return have
	}
	if a.Again.Memory == nil {
		a.Again.Memory = map[string]any{}
	}
	fresh := &rounds{asked: map[string]bool{}, again: map[string]bool{}}
	a.Again.Memory[key] = fresh
	return fresh
}

// change applies the mutations of one policy, and continues after one that fails. failed holds the failures. err means
// that the result is not a valid object; it fails the write whatever the failure policy is.
func (p *Mutating) change(ctx context.Context, c about, a *api.Admission) (failed []error, err error) {
	if c.broken != nil {
		return []error{c.broken}, nil
	}
	// Each binding and parameter sees the changes of the earlier ones.
	seen, err := match.See(ctx, a, c.version)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("show the object as %s: %w", c.version.Kind, err))
	}
	c.seen = seen
	if holds, err := p.holds(ctx, c); err != nil {
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
		made, err := p.patched(ctx, c, one, types)
		var answer *apierrors.StatusError
		switch {
		case errors.As(err, &answer):
			return nil, answer
		case err != nil:
			failed = append(failed, err)
		case !match.Same(c.seen.VersionedObject.Object(), made):
			c.seen.UpdateObject(made)
			changed = true
		}
	}
	if !changed {
		return failed, nil
	}
	return failed, match.Replace(ctx, a, c.version, c.seen.VersionedObject.Object())
}

// patched returns the object after one mutation.
func (p *Mutating) patched(
	ctx context.Context,
	c about,
	one patch.Patcher,
	types managedfields.TypeConverter,
) (runtime.Object, error) {
	// Variables are evaluated again, because they may depend on what has changed.
	made, err := one.Patch(c.mutating.scope.CreateContext(ctx), patch.Request{
		MatchedResource: c.version.Resource, VersionedAttributes: c.seen, ObjectInterfaces: p.o.Interfaces,
		OptionalVariables: p.bindingsOf(
			c,
		), Namespace: plugincel.CreateNamespaceObject(c.namespace), TypeConverter: types,
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	// A merge produces an object without a Go type.
	if made, err = match.Typed(made, c.seen.VersionedObject.Object()); err != nil {
		return nil, err
	}
	made.GetObjectKind().SetGroupVersionKind(c.version.Kind)
	return made, nil
}

// Name implements api.Named.
func (*Mutating) Name() string { return "MutatingAdmissionPolicy" }
