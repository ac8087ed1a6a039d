package extensions

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/kinds/validate"
)

const (
	maxAnnotations     = 20
	maxValueExpression = 5 * 1024
)

// validReasons lists the reasons that a failed validation may have.
var validReasons = []metav1.StatusReason{
	metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge,
	metav1.StatusReasonUnauthorized,
}

func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicySpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := validatePolicy(at, p.FailurePolicy, p.ParamKind, p.MatchConstraints)
	// Expressions that were accepted once stay valid.
	scope, err := expression.NewScope(p.ParamKind != nil, false, old == nil)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	errs = append(errs, validateVariables(at.Child("variables"), p.Variables, scope)...)
	errs = append(
		errs,
		validateConditions(
			at.Child("matchConditions"),
			p.MatchConditions,
			func(c admissionregistrationv1.MatchCondition) error {
				return scope.Check(c.Expression, expression.Boolean, true)
			},
		)...)
	if len(p.Validations) == 0 && len(p.AuditAnnotations) == 0 {
		errs = append(errs, field.Required(at.Child("validations"),
			"validations or auditAnnotations must be non-empty"), field.Required(at.Child("auditAnnotations"),
			"validations or auditAnnotations must be non-empty"))
	}
	for i, v := range p.Validations {
		errs = append(errs, validateValidation(at.Child("validations").Index(i), v, scope)...)
	}
	return append(errs, validateAnnotations(at.Child("auditAnnotations"), p.AuditAnnotations, scope)...)
}

func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicySpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := validatePolicy(at, p.FailurePolicy, p.ParamKind, p.MatchConstraints)
	scope, err := expression.NewScope(p.ParamKind != nil, true, old == nil)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	errs = append(errs, validateVariables(at.Child("variables"), p.Variables, scope)...)
	errs = append(
		errs,
		validateConditions(
			at.Child("matchConditions"),
			p.MatchConditions,
			func(c admissionregistrationv1.MatchCondition) error {
				return scope.Check(c.Expression, expression.Boolean, true)
			},
		)...)
	if p.ReinvocationPolicy == "" {
		errs = append(errs, field.Required(at.Child("reinvocationPolicy"), ""))
	} else {
		errs = append(errs, requireKnown(at.Child("reinvocationPolicy"), &p.ReinvocationPolicy,
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	if len(p.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i, m := range p.Mutations {
		errs = append(errs, validateMutation(at.Child("mutations").Index(i), m, scope)...)
	}
	return errs
}

func validatePolicy(
	at *field.Path,
	failure *admissionregistrationv1.FailurePolicyType,
	param *admissionregistrationv1.ParamKind,
	m *admissionregistrationv1.MatchResources,
) field.ErrorList {
	errs := requireKnown(at.Child("failurePolicy"), failure, admissionregistrationv1.Fail,
		admissionregistrationv1.Ignore)
	if param != nil {
		where := at.Child("paramKind")
		if param.APIVersion == "" {
			errs = append(errs, field.Required(where.Child("apiVersion"), ""))
		} else if gv, err := schema.ParseGroupVersion(param.APIVersion); err != nil || gv.Version == "" {
			errs = append(errs, field.Invalid(where.Child("apiVersion"), param.APIVersion, "must be a valid group "+
				"version"))
		}
		if param.Kind == "" {
			errs = append(errs, field.Required(where.Child("kind"), ""))
		}
	}
	where := at.Child("matchConstraints")
	if m == nil {
		return append(errs, field.Required(where, ""))
	}
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(where.Child("resourceRules"), ""))
	}
	return append(errs, validateConstraints(where, m)...)
}

func validateConstraints(at *field.Path, m *admissionregistrationv1.MatchResources) field.ErrorList {
	errs := requireKnown(at.Child("matchPolicy"), m.MatchPolicy, admissionregistrationv1.Equivalent,
		admissionregistrationv1.Exact)
	errs = append(errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("objectSelector"))...)
	for name, rules := range map[string][]admissionregistrationv1.NamedRuleWithOperations{
		"resourceRules": m.ResourceRules, "excludeResourceRules": m.ExcludeResourceRules} {
		for i, r := range rules {
			where := at.Child(name).Index(i)
			errs = append(errs, validateRule(where, r.RuleWithOperations)...)
			again := validate.MarkRepeats(r.ResourceNames)
			for n, one := range r.ResourceNames {
				if again[n] {
					errs = append(errs, field.Duplicate(where.Child("resourceNames").Index(n), one))
				}
			}
		}
	}
	return errs
}

var variableName = validate.Pattern(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

func validateVariables(
	at *field.Path,
	list []admissionregistrationv1.Variable,
	scope *expression.Scope,
) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, v := range list {
		where := at.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(where.Child("name"), "name is not specified"))
		case !variableName().MatchString(v.Name):
			errs = append(errs, field.Invalid(where.Child("name"), v.Name, "name is not a valid CEL identifier"))
		case seen.Has(v.Name):
			errs = append(errs, field.Duplicate(where.Child("name"), v.Name))
		}
		seen.Insert(v.Name)
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(where.Child("expression"), "expression is not specified"))
		} else if err := scope.Declare(v.Name, v.Expression); err != nil {
			errs = append(errs, field.Invalid(where.Child("expression"), v.Expression, err.Error()))
		}
	}
	return errs
}

func validateValidation(at *field.Path, v admissionregistrationv1.Validation, scope *expression.Scope) field.ErrorList {
	var errs field.ErrorList
	message, spoken := strings.TrimSpace(v.Message), strings.TrimSpace(v.MessageExpression)
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else if err := scope.Check(v.Expression, expression.Boolean, true); err != nil {
		errs = append(errs, field.Invalid(at.Child("expression"), v.Expression, err.Error()))
	}
	switch {
	case v.MessageExpression != "" && spoken == "":
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression,
			"must be non-empty if specified"))
	case spoken != "":
		if err := scope.Check(v.MessageExpression, expression.String, false); err != nil {
			errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, err.Error()))
		}
	}
	switch {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.Contains(message, "\n"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	}
	return append(errs, requireKnown(at.Child("reason"), v.Reason, validReasons...)...)
}

func validateAnnotations(
	at *field.Path,
	list []admissionregistrationv1.AuditAnnotation,
	scope *expression.Scope,
) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxAnnotations {
		errs = append(errs, field.TooMany(at, len(list), maxAnnotations))
	}
	seen := sets.New[string]()
	for i, a := range list {
		where := at.Index(i)
		if a.Key == "" {
			errs = append(errs, field.Required(where.Child("key"), ""))
		} else {
			for _, reason := range utilvalidation.IsQualifiedName(a.Key) {
				errs = append(errs, field.Invalid(where.Child("key"), a.Key, reason))
			}
		}
		if seen.Has(a.Key) {
			errs = append(errs, field.Duplicate(where.Child("key"), a.Key))
		}
		seen.Insert(a.Key)
		switch {
		case strings.TrimSpace(a.ValueExpression) == "":
			errs = append(errs, field.Required(where.Child("valueExpression"), "valueExpression is not specified"))
		case len(a.ValueExpression) > maxValueExpression:
			errs = append(errs, field.TooLong(where.Child("valueExpression"), "", maxValueExpression))
		default:
			if err := scope.Check(a.ValueExpression, expression.StringOrNull, false); err != nil {
				errs = append(errs, field.Invalid(where.Child("valueExpression"), a.ValueExpression, err.Error()))
			}
		}
	}
	return errs
}

func validateMutation(at *field.Path, m admissionregistrationv1.Mutation, scope *expression.Scope) field.ErrorList {
	var errs field.ErrorList
	if m.PatchType == "" {
		return field.ErrorList{field.Required(at.Child("patchType"), "")}
	}
	errs = append(errs, requireKnown(at.Child("patchType"), &m.PatchType,
		admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)...)
	apply, js := at.Child("applyConfiguration"), at.Child("jsonPatch")
	if m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration {
		if m.JSONPatch != nil {
			errs = append(errs, field.Forbidden(js, "must not be set when patchType is ApplyConfiguration"))
		}
		if m.ApplyConfiguration == nil || strings.TrimSpace(m.ApplyConfiguration.Expression) == "" {
			return append(errs, field.Required(apply.Child("expression"), ""))
		}
		if err := scope.CheckPatch(&patch.ApplyConfigurationCondition{
			Expression: m.ApplyConfiguration.Expression}); err != nil {
			errs = append(errs, field.Invalid(apply.Child("expression"), m.ApplyConfiguration.Expression, err.Error()))
		}
		return errs
	}
	if m.ApplyConfiguration != nil {
		errs = append(errs, field.Forbidden(apply, "must not be set when patchType is JSONPatch"))
	}
	if m.JSONPatch == nil || strings.TrimSpace(m.JSONPatch.Expression) == "" {
		return append(errs, field.Required(js.Child("expression"), ""))
	}
	if err := scope.CheckPatch(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}); err != nil {
		errs = append(errs, field.Invalid(js.Child("expression"), m.JSONPatch.Expression, err.Error()))
	}
	return errs
}

func validateBinding(b *bindingSpec, acts bool) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if b.PolicyName == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		errs = append(errs, validate.DNSSubdomain(b.PolicyName, at.Child("policyName"))...)
	}
	if r := b.ParamRef; r != nil {
		where := at.Child("paramRef")
		switch {
		case r.Name == "" && r.Selector == nil:
			errs = append(errs, field.Required(where, "one of name or selector must be specified"))
		case r.Name != "" && r.Selector != nil:
			errs = append(errs, field.Forbidden(where.Child("name"), "name and selector are mutually exclusive"))
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(r.Selector,
			metav1validation.LabelSelectorValidationOptions{}, where.Child("selector"))...)
		if r.ParameterNotFoundAction == nil {
			errs = append(errs, field.Required(where.Child("parameterNotFoundAction"), ""))
		}
		errs = append(errs, requireKnown(where.Child("parameterNotFoundAction"), r.ParameterNotFoundAction,
			admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)...)
	}
	if b.MatchResources != nil {
		errs = append(errs, validateConstraints(at.Child("matchResources"), b.MatchResources)...)
	}
	if !acts {
		return errs
	}
	where := at.Child("validationActions")
	if len(b.ValidationActions) == 0 {
		errs = append(errs, field.Required(where, "at least one validation action is required"))
	}
	again := validate.MarkRepeats(b.ValidationActions)
	for i, action := range b.ValidationActions {
		errs = append(errs, requireKnown(where.Index(i), &action, admissionregistrationv1.Deny,
			admissionregistrationv1.Warn, admissionregistrationv1.Audit)...)
		if again[i] {
			errs = append(errs, field.Duplicate(where.Index(i), action))
		}
	}
	if slices.Contains(b.ValidationActions, admissionregistrationv1.Deny) &&
		slices.Contains(b.ValidationActions, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(where, b.ValidationActions, "must not contain both Deny and Warn (repeating "+
			"the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
