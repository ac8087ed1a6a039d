package extensions

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
)

func MutatingWebhookConfigurations() *kind.Kind {
	type configuration = *admissionregistrationv1.MutatingWebhookConfiguration
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.MutatingWebhookConfiguration](),
		NewList:       kind.New[admissionregistrationv1.MutatingWebhookConfigurationList](),
		HasGeneration: true,
		Default: kind.Adapt(func(c configuration) {
			for i := range c.Webhooks {
				h := &c.Webhooks[i]
				defaultHook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector,
					&h.TimeoutSeconds, &h.ClientConfig, h.Rules)
				if h.ReinvocationPolicy == nil {
					h.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
				}
			}
		}),
		Validate: kind.AdaptValidate(func(c configuration) field.ErrorList {
			return validateWebhooks(c.Webhooks,
				nil)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old configuration) field.ErrorList {
			return validateWebhooks(c.Webhooks, old.Webhooks)
		}),
		Columns: kind.NewColumns("Webhooks:integer", "Age"),
		Row: kind.AdaptRow(func(c configuration) []any {
			return []any{int64(len(c.Webhooks)),
				cell.Age(c.CreationTimestamp)}
		}),
	}
}

func ValidatingWebhookConfigurations() *kind.Kind {
	type configuration = *admissionregistrationv1.ValidatingWebhookConfiguration
	return &kind.Kind{
		GVK:      admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		Resource: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration",
		Categories: []string{"api-extensions"}, ConditionalUpdate: true,
		New:           kind.New[admissionregistrationv1.ValidatingWebhookConfiguration](),
		NewList:       kind.New[admissionregistrationv1.ValidatingWebhookConfigurationList](),
		HasGeneration: true,
		Default: kind.Adapt(func(c configuration) {
			for i := range c.Webhooks {
				h := &c.Webhooks[i]
				defaultHook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector,
					&h.TimeoutSeconds, &h.ClientConfig, h.Rules)
			}
		}),
		Validate: kind.AdaptValidate(func(c configuration) field.ErrorList {
			return validateWebhooks(hooksOf(c),
				nil)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old configuration) field.ErrorList {
			return validateWebhooks(hooksOf(c), hooksOf(old))
		}),
		Columns: kind.NewColumns("Webhooks:integer", "Age"),
		Row: kind.AdaptRow(func(c configuration) []any {
			return []any{int64(len(c.Webhooks)),
				cell.Age(c.CreationTimestamp)}
		}),
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
	setIfNil(failure, admissionregistrationv1.Fail)
	setIfNil(match, admissionregistrationv1.Equivalent)
	setIfNil(namespaces, metav1.LabelSelector{})
	setIfNil(objects, metav1.LabelSelector{})
	setIfNil(timeout, 10)
	if client.Service != nil {
		setIfNil(&client.Service.Port, 443)
	}
	defaultRules(rules)
}

func defaultRules(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		setIfNil(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// setIfNil sets *to to value if it is nil.
func setIfNil[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// wasAccepted reports whether a stored object has the condition: it stays valid even if this server would reject it in
// a new object.
func wasAccepted(c admissionregistrationv1.MatchCondition, old []admissionregistrationv1.MutatingWebhook) bool {
	return slices.ContainsFunc(old, func(h admissionregistrationv1.MutatingWebhook) bool {
		return slices.ContainsFunc(h.MatchConditions,
			func(o admissionregistrationv1.MatchCondition) bool { return o.Expression == c.Expression })
	})
}
