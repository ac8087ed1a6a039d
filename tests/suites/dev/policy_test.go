package dev

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proves S12.
func TestPoliciesReportInvalidExpressions(t *testing.T) {
	t.Parallel()
	name := createNamespace(t) // the namespace's name is also a unique name for the policy
	policies := sharedClient.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	must[*admissionregistrationv1.ValidatingAdmissionPolicy](t)(
		policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
						{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{"CREATE"},
							Rule: admissionregistrationv1.Rule{
								APIGroups:   []string{"apps"},
								APIVersions: []string{"v1"},
								Resources:   []string{"deployments"},
							},
						}},
					},
				},
				Validations: []admissionregistrationv1.Validation{
					{Expression: "object.spec.replicas <= 5"},
					{Expression: "object.spec.copies <= 5", MessageExpression: "'a' + string(object.spec.replicas)"},
					{Expression: "object.spec.replicas == 'many'"},
				},
			},
		}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() { _ = policies.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	warned := func(generation int64, fields ...string) {
		t.Helper()
		waitFor(t, "the check", func(ctx context.Context) (bool, any) {
			p, err := policies.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if p.Status.TypeChecking == nil || p.Status.ObservedGeneration != generation {
				return false, p.Status
			}
			got := p.Status.TypeChecking.ExpressionWarnings
			fine := len(got) == len(fields)
			for i := range min(len(got), len(fields)) {
				fine = fine && got[i].FieldRef == fields[i] &&
					strings.Contains(got[i].Warning, "apps/v1, Kind=Deployment")
			}
			return fine, got
		})
	}
	warned(1, "spec.validations[1].expression", "spec.validations[2].expression")
	if _, err := policies.Patch(t.Context(), name, "application/json-patch+json", []byte(`[{"op":"remove","path":"/spec/validations/2"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	warned(2, "spec.validations[1].expression")
}
