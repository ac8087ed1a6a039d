package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/match"
	"clusterctl/daemons/kinds/expression"
)

// validating is the compiled part that only validating policies have.
type validating struct {
	spec        *admissionregistrationv1.ValidatingAdmissionPolicySpec
	expressions plugincel.ConditionEvaluator
	messages    plugincel.ConditionEvaluator
	annotations plugincel.ConditionEvaluator
}

func (r *rule) compileValidating(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) error {
	scope, err := expression.NewScope(spec.ParamKind != nil, false, false)
	if err != nil {
		return err
	}
	for _, v := range spec.Variables {
		if err := scope.Declare(v.Name, v.Expression); err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	r.conditions = newConditions(scope, spec.MatchConditions)
	v := &validating{spec: spec}
	var rules, messages, values []*expression.Text
	for _, one := range spec.Validations {
		rules = append(rules, &expression.Text{Expression: one.Expression, Types: expression.Boolean})
		messages = append(messages, &expression.Text{Expression: one.MessageExpression, Types: expression.String})
	}
	for _, one := range spec.AuditAnnotations {
		values = append(values,
			&expression.Text{Name: one.Key, Expression: one.ValueExpression, Types: expression.StringOrNull})
	}
	v.expressions, v.messages, v.annotations = scope.Evaluator(rules, true), scope.Evaluator(messages,
		false), scope.Evaluator(values, false)
	r.validating = v
	return nil
}

func newConditions(scope *expression.Scope,
	list []admissionregistrationv1.MatchCondition) plugincel.ConditionEvaluator {
	if len(list) == 0 {
		return nil
	}
	var texts []*expression.Text
	for _, c := range list {
		texts = append(texts, &expression.Text{Name: c.Name, Expression: c.Expression, Types: expression.Boolean})
	}
	return scope.Evaluator(texts, true)
}

// Validating evaluates validating policies. It denies, warns and records audit annotations as the bindings specify.
type Validating struct{ set }

// NewValidating returns the plugin.
func NewValidating(o Options) *Validating {
	return &Validating{set{o: o,
		policies: schema.GroupResource{
			Group:    admissionregistrationv1.GroupName,
			Resource: "validatingadmissionpolicies",
		},
		bindings: schema.GroupResource{
			Group:    admissionregistrationv1.GroupName,
			Resource: "validatingadmissionpolicybindings",
		},
	}}
}

// failure is a failed validation of a policy.
type failure struct {
	matchedWrite
	message      string
	reason       metav1.StatusReason
	index        int
	alwaysDenies bool // deny whatever the bindings specify, because the policy is misconfigured
}

// auditedFailure is a failure in an audit annotation.
type auditedFailure struct {
	Message         string                                     `json:"message"`
	Policy          string                                     `json:"policy"`
	Binding         string                                     `json:"binding"`
	ExpressionIndex int                                        `json:"expressionIndex"`
	Actions         []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// Validate evaluates all policies that match. It returns the first failure that a binding denies.
func (p *Validating) Validate(ctx context.Context, a *api.Admission) error {
	rules := p.rules()
	if len(rules) == 0 || match.Exempt(a) {
		return nil
	}
	var failures []failure
	annotations := map[string][]string{}
	for _, r := range rules {
		err := p.eachMatch(ctx, r, a, func(c matchedWrite, err error) error {
			failures = append(failures, p.evaluate(ctx, c, err, annotations)...)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	if a.Origin != nil {
		for key, values := range annotations {
			a.Origin.Annotate(key, strings.Join(values, ", "))
		}
	}
	return p.report(a, failures)
}

// evaluate returns the failures of a policy for a write.
func (p *Validating) evaluate(
	ctx context.Context,
	c matchedWrite,
	misconfigured error,
	annotations map[string][]string,
) []failure {
	failed := func(index int, always bool, err error) []failure {
		if !c.failsClosed {
			p.o.Log.Warn("a policy failed that may be ignored", "policy", c.name, "err", err)
			return nil
		}
		return []failure{
			{matchedWrite: c, message: err.Error(), reason: metav1.StatusReasonInvalid, index: index,
				alwaysDenies: always},
		}
	}
	if misconfigured != nil {
		return failed(0, true, misconfigured)
	}
	if c.broken != nil {
		return failed(0, false, c.broken)
	}
	if holds, err := p.conditionsHold(ctx, c); err != nil {
		return failed(0, false, err)
	} else if !holds {
		return nil
	}
	v, bindings := c.validating, p.variablesOf(c)
	request := plugincel.CreateAdmissionRequest(c.attributes.Attributes,
		metav1.GroupVersionResource(c.version.Resource), metav1.GroupVersionKind(c.version.Kind))
	ns := plugincel.CreateNamespaceObject(c.namespace)
	results, budget, err := v.expressions.ForInput(ctx, c.attributes, request, bindings, ns,
		celconfig.RuntimeCELCostBudget)
	if err != nil {
		return failed(0, false, err)
	}
	plain := plugincel.OptionalVariableBindings{VersionedParams: c.param}
	messages, _, messagesFailed := v.messages.ForInput(ctx, c.attributes, request, plain, ns, budget)
	var failures []failure
	for i, result := range results {
		switch {
		case result.Error != nil:
			failures = append(failures, failed(i, false, result.Error)...)
		case errors.Is(messagesFailed, apiservercel.ErrInternal),
			errors.Is(messagesFailed, apiservercel.ErrOutOfBudget):
			failures = append(failures, failed(i, false, fmt.Errorf("failed messageExpression: %w", messagesFailed))...)
		case result.EvalResult == celtypes.True:
		default:
			f := failure{matchedWrite: c, reason: metav1.StatusReasonInvalid, index: i}
			one := v.spec.Validations[i]
			if one.Reason != nil {
				f.reason = *one.Reason
			}
			if messagesFailed == nil {
				f.message = messageText(messages[i])
			}
			f.message = cmp.Or(f.message, strings.TrimSpace(one.Message),
				"failed expression: "+strings.TrimSpace(one.Expression))
			failures = append(failures, f)
		}
	}
	values, _, err := v.annotations.ForInput(ctx, c.attributes, request, plain, ns, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return failed(0, false, err)
	}
	for i, value := range values {
		if value.Error != nil {
			failures = append(failures, failed(0, true, value.Error)...)
			continue
		}
		if text, ok := value.EvalResult.Value().(string); ok && strings.TrimSpace(text) != "" {
			addAnnotation(annotations, c.name+"/"+v.spec.AuditAnnotations[i].Key, strings.TrimSpace(text))
		}
	}
	return failures
}

// messageText returns the result of a messageExpression, or "" if it cannot be used.
func messageText(result plugincel.EvaluationResult) string {
	if result.Error != nil || result.EvalResult == nil {
		return ""
	}
	text, ok := result.EvalResult.Value().(string)
	if !ok || len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes {
		return ""
	}
	return oneLine(text)
}

// maxAnnotation is the maximum length, in bytes, of a value in an audit annotation of a policy. maxAudited is how
// many failures the annotation lists.
const (
	maxAnnotation = 10 << 10
	maxAudited    = 50
)

// addAnnotation adds a value to an annotation, unless it is in the annotation already.
func addAnnotation(annotations map[string][]string, key, value string) {
	if len(value) > maxAnnotation {
		value = value[:maxAnnotation]
	}
	if !slices.Contains(annotations[key], value) {
		annotations[key] = append(annotations[key], value)
	}
}

// report performs the actions of the bindings for the failures.
func (p *Validating) report(a *api.Admission, failures []failure) error {
	var refused *failure
	var notes []auditedFailure
	for i, f := range failures {
		if refused == nil && (f.alwaysDenies || f.hasAction(admissionregistrationv1.Deny)) {
			refused = &failures[i]
		}
		if f.alwaysDenies {
			continue
		}
		if f.hasAction(admissionregistrationv1.Warn) && a.Warn != nil {
			a.Warn(fmt.Sprintf("Validation failed for %s: %s", f.messagePrefix("ValidatingAdmissionPolicy"), f.message))
		}
		if f.hasAction(admissionregistrationv1.Audit) && len(notes) < maxAudited {
			notes = append(notes, auditedFailure{f.message, f.name, f.binding.name, f.index, f.binding.actions})
		}
	}
	if len(notes) > 0 && a.Origin != nil {
		if text, err := json.Marshal(notes); err == nil {
			a.Origin.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
		}
	}
	if refused == nil {
		return nil
	}
	return denialError(a, refused.messagePrefix("ValidatingAdmissionPolicy")+" denied request: "+refused.message,
		refused.reason)
}

// denialError returns the error for a failure, in upstream's words.
func denialError(a *api.Admission, message string, reason metav1.StatusReason) error {
	err := apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, errors.New(message))
	err.ErrStatus.Reason = reason
	switch reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Code = http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Code = http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Code = http.StatusRequestEntityTooLarge
	default:
		err.ErrStatus.Code = http.StatusUnprocessableEntity
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

// Name implements api.Named.
func (*Validating) Name() string { return "ValidatingAdmissionPolicy" }
