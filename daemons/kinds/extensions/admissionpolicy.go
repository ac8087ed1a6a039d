package extensions

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
)

// bindingSpec is the binding of a policy of either kind. Bindings of mutating policies have no actions.
type bindingSpec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec

func ValidatingAdmissionPolicies() *kind.Kind {
	type policy = *admissionregistrationv1.ValidatingAdmissionPolicy
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		Resource: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.ValidatingAdmissionPolicy](),
		NewList:       kind.New[admissionregistrationv1.ValidatingAdmissionPolicyList](),
		HasGeneration: true,
		Default: kind.Adapt(func(p policy) {
			setIfNil(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultConstraints(p.Spec.MatchConstraints)
		}),
		PrepareCreate: kind.Adapt(func(p policy) {
			p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
		}),
		Validate: kind.AdaptValidate(func(p policy) field.ErrorList { return validateValidatingPolicy(&p.Spec, nil) }),
		ValidateUpdate: kind.AdaptValidateUpdate(func(p, old policy) field.ErrorList {
			return validateValidatingPolicy(&p.Spec, &old.Spec)
		}),
		Status: &kind.Status{KeepsAllMeta: true, Copy: func(to, from runtime.Object) {
			to.(policy).Status = *from.(policy).Status.DeepCopy()
		}},
		Columns: kind.NewColumns("Validations:integer", "ParamKind", "Age"),
		Row: kind.AdaptRow(func(p policy) []any {
			return []any{int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), cell.Age(p.CreationTimestamp)}
		}),
	}
}

func MutatingAdmissionPolicies() *kind.Kind {
	type policy = *admissionregistrationv1.MutatingAdmissionPolicy
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
		Resource: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.MutatingAdmissionPolicy](),
		NewList:       kind.New[admissionregistrationv1.MutatingAdmissionPolicyList](),
		HasGeneration: true,
		Default: kind.Adapt(func(p policy) {
			setIfNil(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultConstraints(p.Spec.MatchConstraints)
		}),
		Validate: kind.AdaptValidate(func(p policy) field.ErrorList { return validateMutatingPolicy(&p.Spec, nil) }),
		ValidateUpdate: kind.AdaptValidateUpdate(func(p, old policy) field.ErrorList {
			return validateMutatingPolicy(&p.Spec, &old.Spec)
		}),
		Columns: kind.NewColumns("Mutations:integer", "ParamKind", "Age"),
		Row: kind.AdaptRow(func(p policy) []any {
			return []any{int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), cell.Age(p.CreationTimestamp)}
		}),
	}
}

func ValidatingAdmissionPolicyBindings() *kind.Kind {
	type binding = *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		Resource: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.ValidatingAdmissionPolicyBinding](),
		NewList:       kind.New[admissionregistrationv1.ValidatingAdmissionPolicyBindingList](),
		HasGeneration: true,
		Default:       kind.Adapt(func(b binding) { defaultConstraints(b.Spec.MatchResources) }),
		Validate:      kind.AdaptValidate(func(b binding) field.ErrorList { return validateBinding(&b.Spec, true) }),
		Columns:       kind.NewColumns("PolicyName", "ParamRef", "Age"),
		Row: kind.AdaptRow(func(b binding) []any {
			return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef), cell.Age(b.CreationTimestamp)}
		}),
	}
}

func MutatingAdmissionPolicyBindings() *kind.Kind {
	type binding = *admissionregistrationv1.MutatingAdmissionPolicyBinding
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
		Resource: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.MutatingAdmissionPolicyBinding](),
		NewList:       kind.New[admissionregistrationv1.MutatingAdmissionPolicyBindingList](),
		HasGeneration: true,
		Default:       kind.Adapt(func(b binding) { defaultConstraints(b.Spec.MatchResources) }),
		Validate: kind.AdaptValidate(func(b binding) field.ErrorList {
			return validateBinding(
				&bindingSpec{
					PolicyName:     b.Spec.PolicyName,
					ParamRef:       b.Spec.ParamRef,
					MatchResources: b.Spec.MatchResources,
				},
				false,
			)
		}),
		Columns: kind.NewColumns("PolicyName", "ParamRef", "Age"),
		Row: kind.AdaptRow(func(b binding) []any {
			return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef), cell.Age(b.CreationTimestamp)}
		}),
	}
}

func defaultConstraints(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	setIfNil(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	setIfNil(&m.NamespaceSelector, metav1.LabelSelector{})
	setIfNil(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setIfNil(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRef(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
		return "<unset>"
	case r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	}
	return "*"
}
