package kinds

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func mutatingWebhookConfigurations() *Kind {
	type configuration = *admissionregistrationv1.MutatingWebhookConfiguration
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           made[admissionregistrationv1.MutatingWebhookConfiguration](),
		NewList:       made[admissionregistrationv1.MutatingWebhookConfigurationList](),
		HasGeneration: true,
		Default: does(func(c configuration) {
			for i := range c.Webhooks {
				h := &c.Webhooks[i]
				defaultHook(
					&h.FailurePolicy,
					&h.MatchPolicy,
					&h.NamespaceSelector,
					&h.ObjectSelector,
					&h.TimeoutSeconds,
					&h.ClientConfig,
					h.Rules,
				)
				if h.ReinvocationPolicy == nil {
					h.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
				}
			}
		}),
		Validate: checks(func(c configuration) field.ErrorList { return validateWebhooks(c.Webhooks, nil) }),
		ValidateUpdate: compares(func(c, old configuration) field.ErrorList {
			return validateWebhooks(c.Webhooks, old.Webhooks)
		}),
		Columns: columns("Webhooks:integer", "Age"),
		Row:     row(func(c configuration) []any { return []any{int64(len(c.Webhooks)), age(c.CreationTimestamp)} }),
	}
}

func validatingWebhookConfigurations() *Kind {
	type configuration = *admissionregistrationv1.ValidatingWebhookConfiguration
	return &Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		Resource: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           made[admissionregistrationv1.ValidatingWebhookConfiguration](),
		NewList:       made[admissionregistrationv1.ValidatingWebhookConfigurationList](),
		HasGeneration: true,
		Default: does(func(c configuration) {
			for i := range c.Webhooks {
				h := &c.Webhooks[i]
				defaultHook(
					&h.FailurePolicy,
					&h.MatchPolicy,
					&h.NamespaceSelector,
					&h.ObjectSelector,
					&h.TimeoutSeconds,
					&h.ClientConfig,
					h.Rules,
				)
			}
		}),
		Validate: checks(func(c configuration) field.ErrorList { return validateWebhooks(hooksOf(c), nil) }),
		ValidateUpdate: compares(func(c, old configuration) field.ErrorList {
			return validateWebhooks(hooksOf(c), hooksOf(old))
		}),
		Columns: columns("Webhooks:integer", "Age"),
		Row:     row(func(c configuration) []any { return []any{int64(len(c.Webhooks)), age(c.CreationTimestamp)} }),
	}
}

// hooksOf converts validating webhooks to mutating ones, which have an additional reinvocation policy.
func hooksOf(c *admissionregistrationv1.ValidatingWebhookConfiguration) []admissionregistrationv1.MutatingWebhook {
	out := make([]admissionregistrationv1.MutatingWebhook, 0, len(c.Webhooks))
	for _, h := range c.Webhooks {
		out = append(out, admissionregistrationv1.MutatingWebhook{
			Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
			MatchPolicy:       h.MatchPolicy,
			NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
			TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions,
			MatchConditions: h.MatchConditions,
		})
	}
	return out
}

func defaultHook(
	failure **admissionregistrationv1.FailurePolicyType,
	match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector,
	timeout **int32,
	client *admissionregistrationv1.WebhookClientConfig,
	rules []admissionregistrationv1.RuleWithOperations,
) {
	orDefault(failure, admissionregistrationv1.Fail)
	orDefault(match, admissionregistrationv1.Equivalent)
	orDefault(namespaces, metav1.LabelSelector{})
	orDefault(objects, metav1.LabelSelector{})
	orDefault(timeout, 10)
	if client.Service != nil {
		orDefault(&client.Service.Port, 443)
	}
	defaultRules(rules)
}

func defaultRules(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		orDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// orDefault sets *to to value if it is nil.
func orDefault[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// accepted reports whether a stored object has the condition: it stays valid even if this server would reject it in a
// new object.
func accepted(c admissionregistrationv1.MatchCondition, old []admissionregistrationv1.MutatingWebhook) bool {
	return slices.ContainsFunc(old, func(h admissionregistrationv1.MutatingWebhook) bool {
		return slices.ContainsFunc(
			h.MatchConditions,
			func(o admissionregistrationv1.MatchCondition) bool { return o.Expression == c.Expression },
		)
	})
}
