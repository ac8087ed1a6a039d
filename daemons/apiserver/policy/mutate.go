package policy

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/match"
	"clusterctl/daemons/kinds/expression"
)

// mutating is what a mutating policy has beyond what all have, compiled.
type mutating struct {
	scope   *expression.Scope
	patches []patch.Patcher
	again   bool // whether it is asked again when the object has changed since
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
			m.patches = append(m.patches, patch.NewJSONPatcher(scope.Mutation(&patch.JSONPatchCondition{Expression: one.JSONPatch.Expression})))
		case one.ApplyConfiguration != nil:
			m.patches = append(m.patches, patch.NewApplyConfigurationPatcher(scope.Mutation(&patch.ApplyConfigurationCondition{Expression: one.ApplyConfiguration.Expression})))
		}
	}
	r.mutating = m
	return nil
}

// Mutating changes objects as mutating policies say, one after the other in the order of
// their names.
type Mutating struct{ set }

// NewMutating returns the plugin.
func NewMutating(o Options) *Mutating {
	return &Mutating{set{o: o,
		policies: schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"},
		bindings: schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicybindings"},
	}}
}

// rounds is what is remembered of the policies from the first round to the second.
type rounds struct {
	asked map[string]bool // those that may be asked again: policy, binding
	again map[string]bool // those that must be
	left  runtime.Object
}

// Admit asks the policies that are concerned. In the second round it asks those that want
// to be asked again and have not seen what the object has become.
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
	asked := false
	for _, r := range rules {
		err := p.concerned(ctx, r, a, func(c about, err error) error {
			id := c.sayer("")
			if a.Again.Second && !memory.again[id] {
				return nil
			}
			asked = true
			before := a.Object
			if err == nil {
				err = p.change(ctx, c, a)
			}
			if err != nil {
				if !c.fail {
					p.o.Log.Warn("a policy failed that may be ignored", "policy", c.name, "err", err)
					return ctx.Err()
				}
				return refusal(a, fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", c.name, c.bound(), err), metav1.StatusReasonInvalid)
			}
			if !match.Same(before, a.Object) {
				for other := range memory.asked {
					memory.again[other] = true
				}
				a.Again.Wanted = true
			}
			if r.mutating != nil && r.mutating.again && !a.Again.Second {
				memory.asked[id] = true
			}
			delete(memory.again, id)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if asked {
		memory.left = a.Object.DeepCopyObject()
	}
	return nil
}

func (c about) bound() string {
	if c.binding == nil {
		return ""
	}
	return c.binding.name
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

// change applies the mutations of one policy.
func (p *Mutating) change(ctx context.Context, c about, a *api.Admission) error {
	// What an earlier binding or parameter made is what this one sees.
	seen, err := match.See(ctx, a, c.version)
	if err != nil {
		return fmt.Errorf("show the object as %s: %w", c.version.Kind, err)
	}
	c.seen = seen
	if holds, err := p.holds(ctx, c); err != nil || !holds {
		return err
	}
	types, err := p.o.Types(a)
	if err != nil {
		return err
	}
	changed := false
	for _, one := range c.mutating.patches {
		// Variables are evaluated anew: they may depend on what was changed.
		composed := c.mutating.scope.CreateContext(ctx)
		made, err := one.Patch(composed, patch.Request{
			MatchedResource: c.version.Resource, VersionedAttributes: c.seen, ObjectInterfaces: p.o.Interfaces,
			OptionalVariables: p.bindingsOf(c), Namespace: plugincel.CreateNamespaceObject(c.namespace), TypeConverter: types,
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return err
		}
		// A merge leaves an object without its type.
		if made, err = match.Typed(made, c.seen.VersionedObject.Object()); err != nil {
			return err
		}
		made.GetObjectKind().SetGroupVersionKind(c.version.Kind)
		if !match.Same(c.seen.VersionedObject.Object(), made) {
			c.seen.UpdateObject(made)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return match.Replace(ctx, a, c.version, c.seen.VersionedObject.Object())
}
