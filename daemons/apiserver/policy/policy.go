// Package policy judges and changes writes as admission policies say, which are rules in
// CEL that objects of the cluster hold: ValidatingAdmissionPolicies and
// MutatingAdmissionPolicies, and the bindings that put them into force. Which writes they
// are about is package match's to say.
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

// Options is what policies are judged with.
type Options struct {
	Objects api.Objects
	May     api.Authorizer // whom expressions ask; nil: nobody may anything
	Params  Params
	Log     *slog.Logger
	// Interfaces make the objects of patches, Types tell how the fields of an object merge.
	Interfaces admission.ObjectInterfaces
	Types      func(a *api.Admission) (managedfields.TypeConverter, error)
}

// Params finds the objects that policies take their parameters from.
type Params interface {
	// Scope says whether objects of a kind are in namespaces; false if it is not served.
	Scope(gvk schema.GroupVersionKind) (namespaced, known bool)
	// Resource is where objects of a kind are served; false if they are not.
	Resource(gvk schema.GroupVersionKind) (r schema.GroupVersionResource, known bool)
	// Param returns one; nil when there is none.
	Param(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
	// Select returns those in a namespace, or in all.
	Select(
		ctx context.Context,
		gvk schema.GroupVersionKind,
		namespace string,
		s labels.Selector,
	) ([]runtime.Object, error)
}

// rule is one policy, ready to be asked, with its bindings.
type rule struct {
	name     string
	criteria *match.Criteria
	param    *schema.GroupVersionKind
	fail     bool
	broken   error // why it cannot be asked, whatever is written

	conditions plugincel.ConditionEvaluator
	validating *validating
	mutating   *mutating

	bindings []*binding
}

// binding puts a policy into force.
type binding struct {
	name     string
	policy   string
	criteria *match.Criteria // nil: all that the policy is about
	ref      *admissionregistrationv1.ParamRef
	selector labels.Selector
	actions  []admissionregistrationv1.ValidationAction
	broken   error
}

// set is the policies of a kind. It is made anew when one of them or of their bindings
// changes; what has not changed is not compiled again.
type set struct {
	o                  Options
	policies, bindings schema.GroupResource
	now                atomic.Pointer[compiled]
	mu                 sync.Mutex // held while compiling
}

type compiled struct {
	policies, bindings int64 // revisions
	rules              []*rule
	known              map[runtime.Object]*rule
}

// rules returns the policies that are in force.
func (s *set) rules() []*rule {
	policies, bindings := s.o.Objects.Revision(s.policies), s.o.Objects.Revision(s.bindings)
	if c := s.now.Load(); c != nil && c.policies == policies && c.bindings == bindings {
		return c.rules
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.now.Load()
	if was == nil {
		was = &compiled{}
	}
	next := &compiled{policies: policies, bindings: bindings, known: map[runtime.Object]*rule{}}
	bound := map[string][]*binding{}
	for _, obj := range s.o.Objects.List(s.bindings, "") {
		if b := newBinding(obj); b != nil {
			bound[b.policy] = append(bound[b.policy], b)
		}
	}
	for _, obj := range s.o.Objects.List(s.policies, "") {
		r := was.known[obj]
		if r == nil {
			r = newRule(obj)
		}
		if r == nil {
			continue
		}
		next.known[obj] = r
		if list := bound[r.name]; len(list) > 0 {
			inForce := *r
			inForce.bindings = list
			next.rules = append(next.rules, &inForce)
		}
	}
	s.now.Store(next)
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
		b.criteria, b.broken = criteria(m)
	}
	if b.broken == nil && b.ref != nil && b.ref.Selector != nil {
		b.selector, b.broken = match.Selector(b.ref.Selector)
	}
	return b
}

// criteria reads what a policy or a binding is about. Without rules a binding is about
// all that its policy is.
func criteria(m *admissionregistrationv1.MatchResources) (*match.Criteria, error) {
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
		r := heads(p.Name, p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
		if r.broken == nil {
			r.broken = r.compileValidating(&p.Spec)
		}
		return r
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		r := heads(p.Name, p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
		if r.broken == nil {
			r.broken = r.compileMutating(&p.Spec)
		}
		return r
	}
	return nil
}

func heads(
	name string,
	failure *admissionregistrationv1.FailurePolicyType,
	param *admissionregistrationv1.ParamKind,
	m *admissionregistrationv1.MatchResources,
) *rule {
	r := &rule{name: name, fail: failure == nil || *failure == admissionregistrationv1.Fail}
	if m == nil {
		m = &admissionregistrationv1.MatchResources{}
	}
	r.criteria, r.broken = criteria(m)
	if param != nil {
		gvk := schema.FromAPIVersionAndKind(param.APIVersion, param.Kind)
		r.param = &gvk
	}
	return r
}

// about is a write that a rule is about by one of its bindings, with one parameter.
type about struct {
	*rule
	binding   *binding
	version   api.Version
	seen      *admission.VersionedAttributes
	param     runtime.Object // nil: none
	namespace *corev1.Namespace
}

// concerned calls f for each of a rule's bindings and parameters that a write concerns. f
// is given an error where that could not be found out, which a policy or, where there is one, a binding
// is to blame for and not the write.
func (s *set) concerned(ctx context.Context, r *rule, a *api.Admission, f func(about, error) error) error {
	misconfigured := func(b *binding, err error) error {
		what := "policy"
		if b != nil {
			what = "binding"
		}
		return f(about{rule: r, binding: b}, fmt.Errorf("failed to configure %s: %w", what, err))
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
		params, err := s.bound(ctx, r, b, a, namespaced)
		if err != nil {
			if err := misconfigured(b, err); err != nil {
				return err
			}
			continue
		}
		for _, p := range params {
			one := about{rule: r, binding: b, version: v, param: p, namespace: match.NamespaceOf(a, s.o.Objects)}
			if one.seen, err = match.See(ctx, a, v); err != nil {
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

// bound returns the parameters with which a binding is about a write; none if it is not.
func (s *set) bound(
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
	return s.params(ctx, r, b, a, namespaced)
}

// params returns the parameters of a binding for a write: one that is nil where there
// are none to be had, none where there should be some and a write may go on without.
func (s *set) params(
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
				"cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
			)
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

// holds says whether the match conditions hold.
func (s *set) holds(ctx context.Context, c about) (bool, error) {
	return match.Holds(
		ctx,
		c.conditions,
		c.seen,
		c.version,
		s.bindingsOf(c),
		plugincel.CreateNamespaceObject(c.namespace),
	)
}

func (s *set) bindingsOf(c about) plugincel.OptionalVariableBindings {
	return plugincel.OptionalVariableBindings{VersionedParams: c.param, Authorizer: match.Authorizer(s.o.May)}
}

// sayer is how a refusal begins.
func (c about) sayer(kind string) string {
	if c.binding == nil {
		return fmt.Sprintf("%s '%s'", kind, c.name)
	}
	return fmt.Sprintf("%s '%s' with binding '%s'", kind, c.name, c.binding.name)
}

// acts says whether a binding wants something to be done.
func (c about) acts(action admissionregistrationv1.ValidationAction) bool {
	return slices.Contains(c.binding.actions, action)
}

// oneLine is a message without the space around it; empty if it has several lines.
func oneLine(text string) string {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "\n") {
		return ""
	}
	return text
}
