// Package policy evaluates ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with the bindings that enable
// them. The policies are rules in CEL that validate or change writes. Package match decides which writes a policy
// matches.
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/match"
)

// Options configures the plugins.
type Options struct {
	Objects api.Objects
	May     api.Authorizer // for authorization checks in expressions; nil denies everything
	Params  Params
	Log     *slog.Logger
	// Interfaces creates the objects of patches. Types defines how the fields of an object merge.
	Interfaces admission.ObjectInterfaces
	Types      func(a *api.Admission) (managedfields.TypeConverter, error)
}

// Params finds the objects from which policies take parameters.
type Params interface {
	// Scope reports whether a kind is namespaced. isKnown is false if it is not served.
	Scope(gvk schema.GroupVersionKind) (namespaced, isKnown bool)
	// Resource returns the resource of a kind. isKnown is false if the kind is not served.
	Resource(gvk schema.GroupVersionKind) (r schema.GroupVersionResource, isKnown bool)
	// Param returns one object; nil if there is none.
	Param(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
	// Select returns the selected objects of a namespace; of all namespaces if namespace is empty.
	Select(
		ctx context.Context,
		gvk schema.GroupVersionKind,
		namespace string,
		s labels.Selector,
	) ([]runtime.Object, error)
}

// rule is one policy, compiled, with its bindings.
type rule struct {
	name        string
	criteria    *match.Criteria
	param       *schema.GroupVersionKind
	failsClosed bool
	broken      error // why the policy cannot be evaluated for any write

	conditions plugincel.ConditionEvaluator
	validating *validating
	mutating   *mutating

	bindings []*binding
}

// binding enables a policy.
type binding struct {
	name     string
	policy   string
	criteria *match.Criteria // nil matches everything that the policy matches
	ref      *admissionregistrationv1.ParamRef
	selector labels.Selector
	actions  []admissionregistrationv1.ValidationAction
	broken   error
}

// set holds the policies of a kind. It is rebuilt when a policy or a binding changes; unchanged ones are not compiled
// again.
type set struct {
	o                  Options
	policies, bindings schema.GroupResource
	current            atomic.Pointer[compiledSet]
	mu                 sync.Mutex // held while compiling
}

type compiledSet struct {
	policies, bindings int64 // revisions
	rules              []*rule
	byObject           map[runtime.Object]*rule
}

// rules returns the enabled policies.
func (s *set) rules() []*rule {
	policies, bindings := s.o.Objects.Revision(s.policies), s.o.Objects.Revision(s.bindings)
	if c := s.current.Load(); c != nil && c.policies == policies && c.bindings == bindings {
		return c.rules
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	if before == nil {
		before = &compiledSet{}
	}
	next := &compiledSet{policies: policies, bindings: bindings, byObject: map[runtime.Object]*rule{}}
	bound := map[string][]*binding{}
	for _, obj := range s.o.Objects.List(s.bindings, "") {
		if b := newBinding(obj); b != nil {
			bound[b.policy] = append(bound[b.policy], b)
		}
	}
	for _, obj := range s.o.Objects.List(s.policies, "") {
		r := before.byObject[obj]
		if r == nil {
			r = newRule(obj)
		}
		if r == nil {
			continue
		}
		next.byObject[obj] = r
		if list := bound[r.name]; len(list) > 0 {
			inForce := *r
			inForce.bindings = list
			next.rules = append(next.rules, &inForce)
		}
	}
	s.current.Store(next)
	return next.rules
}

func newBinding(obj runtime.Object) *binding {
	var b *binding
	var m *admissionregistrationv1.MatchResources
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		b = &binding{name: o.Name, policy: o.Spec.PolicyName, ref: o.Spec.ParamRef, actions: o.Spec.ValidationActions}
		m = o.Spec.MatchResources
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		b = &binding{name: o.Name, policy: o.Spec.PolicyName, ref: o.Spec.ParamRef}
		m = o.Spec.MatchResources
	default:
		return nil
	}
	if m != nil {
		b.criteria, b.broken = newCriteria(m)
	}
	if b.broken == nil && b.ref != nil && b.ref.Selector != nil {
		b.selector, b.broken = match.Selector(b.ref.Selector)
	}
	return b
}

// newCriteria returns the match criteria of a policy or a binding. A binding without rules matches everything that its
// policy matches.
func newCriteria(m *admissionregistrationv1.MatchResources) (*match.Criteria, error) {
	rules := m.ResourceRules
	if len(rules) == 0 {
		rules = []match.Rule{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{"*"},
				APIVersions: []string{"*"},
				Resources:   []string{"*/*"},
			},
		}}}
	}
	return match.New(rules, m.ExcludeResourceRules, m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector)
}

func newRule(obj runtime.Object) *rule {
	switch p := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		r := newPartialRule(p.Name, p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
		if r.broken == nil {
			r.broken = r.compileValidating(&p.Spec)
		}
		return r
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		r := newPartialRule(p.Name, p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
		if r.broken == nil {
			r.broken = r.compileMutating(&p.Spec)
		}
		return r
	}
	return nil
}

func newPartialRule(
	name string,
	failure *admissionregistrationv1.FailurePolicyType,
	param *admissionregistrationv1.ParamKind,
	m *admissionregistrationv1.MatchResources,
) *rule {
	r := &rule{name: name, failsClosed: failure == nil || *failure == admissionregistrationv1.Fail}
	if m == nil {
		m = &admissionregistrationv1.MatchResources{}
	}
	r.criteria, r.broken = newCriteria(m)
	if param != nil {
		gvk := schema.FromAPIVersionAndKind(param.APIVersion, param.Kind)
		r.param = &gvk
	}
	return r
}

// matchedWrite is a write that a rule matches by one of its bindings, with one parameter.
type matchedWrite struct {
	*rule
	binding    *binding
	version    api.Version
	attributes *admission.VersionedAttributes
	param      runtime.Object // nil if the policy has no parameter
	namespace  *corev1.Namespace
}

// eachMatch calls f for each binding and parameter of a rule that match a write. If that cannot be determined, because
// the policy or binding is misconfigured, it calls f with an error.
func (s *set) eachMatch(ctx context.Context, r *rule, a *api.Admission, f func(matchedWrite, error) error) error {
	misconfigured := func(b *binding, err error) error {
		what := "policy"
		if b != nil {
			what = "binding"
		}
		return f(matchedWrite{rule: r, binding: b}, fmt.Errorf("failed to configure %s: %w", what, err))
	}
	if r.criteria == nil {
		return misconfigured(nil, r.broken)
	}
	v, ok, err := r.criteria.Match(a, s.o.Objects)
	if err != nil {
		return misconfigured(nil, err)
	}
	if !ok {
		return nil
	}
	namespaced := false
	if r.param != nil {
		if namespaced, ok = s.o.Params.Scope(*r.param); !ok {
			return misconfigured(nil, fmt.Errorf("failed to find resource referenced by paramKind: '%s'", r.param))
		}
	}
	for _, b := range r.bindings {
		params, err := s.boundParameters(ctx, r, b, a, namespaced)
		if err != nil {
			if err := misconfigured(b, err); err != nil {
				return err
			}
			continue
		}
		for _, p := range params {
			one := matchedWrite{rule: r, binding: b, version: v, param: p, namespace: match.NamespaceOf(a, s.o.Objects)}
			if one.attributes, err = match.Versioned(ctx, a, v); err != nil {
				err = misconfigured(b, fmt.Errorf("failed to convert object version: %w", err))
			} else {
				err = f(one, nil)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// boundParameters returns the parameters with which a binding applies to a write; none if it does not apply.
func (s *set) boundParameters(
	ctx context.Context,
	r *rule,
	b *binding,
	a *api.Admission,
	namespaced bool,
) ([]runtime.Object, error) {
	if b.broken != nil {
		return nil, b.broken
	}
	if b.criteria != nil {
		if _, ok, err := b.criteria.Match(a, s.o.Objects); err != nil || !ok {
			return nil, err
		}
	}
	return s.parametersFor(ctx, r, b, a, namespaced)
}

// parametersFor returns the parameters of a binding for a write. It returns one nil parameter if the policy takes none.
// It returns no parameter if none is found and the binding allows that.
func (s *set) parametersFor(
	ctx context.Context,
	r *rule,
	b *binding,
	a *api.Admission,
	namespaced bool,
) ([]runtime.Object, error) {
	if r.param == nil || b.ref == nil {
		return []runtime.Object{nil}, nil
	}
	namespace := ""
	switch {
	case !namespaced && b.ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case namespaced && b.ref.Namespace != "":
		namespace = b.ref.Namespace
	case namespaced:
		if namespace = a.Namespace; namespace == "" {
			return nil, errors.New(
				"cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	}
	var found []runtime.Object
	if b.selector != nil {
		var err error
		if found, err = s.o.Params.Select(ctx, *r.param, namespace, b.selector); err != nil {
			return nil, err
		}
	} else {
		one, err := s.o.Params.Param(ctx, *r.param, namespace, b.ref.Name)
		if err != nil {
			return nil, err
		}
		if one != nil {
			found = append(found, one)
		}
	}
	if len(found) == 0 &&
		(b.ref.ParameterNotFoundAction == nil || *b.ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction) {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

// conditionsHold reports whether the match conditions hold.
func (s *set) conditionsHold(ctx context.Context, c matchedWrite) (bool, error) {
	return match.ConditionsHold(ctx, c.conditions, c.attributes, c.version, s.variablesOf(c),
		plugincel.CreateNamespaceObject(c.namespace))
}

func (s *set) variablesOf(c matchedWrite) plugincel.OptionalVariableBindings {
	return plugincel.OptionalVariableBindings{VersionedParams: c.param, Authorizer: match.Authorizer(s.o.May)}
}

// messagePrefix returns the beginning of a refusal, which names the policy and the binding.
func (c matchedWrite) messagePrefix(kind string) string {
	if c.binding == nil {
		return fmt.Sprintf("%s '%s'", kind, c.name)
	}
	return fmt.Sprintf("%s '%s' with binding '%s'", kind, c.name, c.binding.name)
}

// hasAction reports whether a binding has an action.
func (c matchedWrite) hasAction(action admissionregistrationv1.ValidationAction) bool {
	return slices.Contains(c.binding.actions, action)
}

// oneLine returns a message without surrounding space; empty if it has several lines.
func oneLine(text string) string {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "\n") {
		return ""
	}
	return text
}
