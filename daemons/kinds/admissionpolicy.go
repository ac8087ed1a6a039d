package kinds

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// bindingSpec is the binding of a policy of either kind. Bindings of mutating policies have no actions.
type bindingSpec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec

func validatingAdmissionPolicies() *Kind {
	type policy = *admissionregistrationv1.ValidatingAdmissionPolicy
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		Resource: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           newOf[admissionregistrationv1.ValidatingAdmissionPolicy](),
		NewList:       newOf[admissionregistrationv1.ValidatingAdmissionPolicyList](),
		HasGeneration: true,
		Default: adapt(func(p policy) {
			setIfNil(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultConstraints(p.Spec.MatchConstraints)
		}),
		PrepareCreate: adapt(func(p policy) { p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{} }),
		Validate:      adaptValidate(func(p policy) field.ErrorList { return validateValidatingPolicy(&p.Spec, nil) }),
		ValidateUpdate: adaptValidateUpdate(func(p, old policy) field.ErrorList {
			return validateValidatingPolicy(&p.Spec, &old.Spec)
		}),
		Status: &Status{KeepsAllMeta: true, Copy: func(to, from runtime.Object) {
			to.(policy).Status = *from.(policy).Status.DeepCopy()
		}},
		Columns: newColumns("Validations:integer", "ParamKind", "Age"),
		Row: adaptRow(func(p policy) []any {
			return []any{int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), age(p.CreationTimestamp)}
		}),
	}
}

func mutatingAdmissionPolicies() *Kind {
	type policy = *admissionregistrationv1.MutatingAdmissionPolicy
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
		Resource: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           newOf[admissionregistrationv1.MutatingAdmissionPolicy](),
		NewList:       newOf[admissionregistrationv1.MutatingAdmissionPolicyList](),
		HasGeneration: true,
		Default: adapt(func(p policy) {
			setIfNil(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultConstraints(p.Spec.MatchConstraints)
		}),
		Validate: adaptValidate(func(p policy) field.ErrorList { return validateMutatingPolicy(&p.Spec, nil) }),
		ValidateUpdate: adaptValidateUpdate(func(p, old policy) field.ErrorList {
			return validateMutatingPolicy(&p.Spec, &old.Spec)
		}),
		Columns: newColumns("Mutations:integer", "ParamKind", "Age"),
		Row: adaptRow(func(p policy) []any {
			return []any{int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), age(p.CreationTimestamp)}
		}),
	}
}

func validatingAdmissionPolicyBindings() *Kind {
	type binding = *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		Resource: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           newOf[admissionregistrationv1.ValidatingAdmissionPolicyBinding](),
		NewList:       newOf[admissionregistrationv1.ValidatingAdmissionPolicyBindingList](),
		HasGeneration: true,
		Default:       adapt(func(b binding) { defaultConstraints(b.Spec.MatchResources) }),
		Validate:      adaptValidate(func(b binding) field.ErrorList { return validateBinding(&b.Spec, true) }),
		Columns:       newColumns("PolicyName", "ParamRef", "Age"),
		Row: adaptRow(func(b binding) []any {
			return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b.CreationTimestamp)}
		}),
	}
}

func mutatingAdmissionPolicyBindings() *Kind {
	type binding = *admissionregistrationv1.MutatingAdmissionPolicyBinding
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
		Resource: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           newOf[admissionregistrationv1.MutatingAdmissionPolicyBinding](),
		NewList:       newOf[admissionregistrationv1.MutatingAdmissionPolicyBindingList](),
		HasGeneration: true,
		Default:       adapt(func(b binding) { defaultConstraints(b.Spec.MatchResources) }),
		Validate: adaptValidate(func(b binding) field.ErrorList {
			return validateBinding(
				&bindingSpec{
					PolicyName:     b.Spec.PolicyName,
					ParamRef:       b.Spec.ParamRef,
					MatchResources: b.Spec.MatchResources,
				},
				false,
			)
		}),
		Columns: newColumns("PolicyName", "ParamRef", "Age"),
		Row: adaptRow(func(b binding) []any {
			return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b.CreationTimestamp)}
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
