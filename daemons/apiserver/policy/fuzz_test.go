package policy

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// FuzzPolicyExpression compiles policies with arbitrary expressions. An invalid expression must break only its policy.
func FuzzPolicyExpression(f *testing.F) {
	f.Add("object.spec.replicas <= params.max", "variables.a + 1 > 0", "'text ' + string(object.metadata.name)",
		"Object{metadata: Object.metadata{labels: {'a': 'b'}}}")
	f.Add("authorizer.group('').resource('pods').check('get').allowed()",
		"object.spec.template.spec.containers.map(c, c.name)", "request.userInfo.username",
		"[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]")
	f.Fuzz(func(t *testing.T, expression, variable, message, change string) {
		r := newRule(
			&admissionregistrationv1.ValidatingAdmissionPolicy{
				Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
					ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
					MatchConstraints: &admissionregistrationv1.MatchResources{},
					Variables:        []admissionregistrationv1.Variable{{Name: "a", Expression: variable}},
					MatchConditions:  []admissionregistrationv1.MatchCondition{{Name: "a", Expression: expression}},
					Validations: []admissionregistrationv1.Validation{
						{Expression: expression, MessageExpression: message},
					},
					AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: message}},
				},
			},
		)
		if r == nil {
			t.Error("a policy is none")
		}
		for _, m := range []admissionregistrationv1.Mutation{
			{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: change}},
			{PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: change}},
		} {
			newRule(
				&admissionregistrationv1.MutatingAdmissionPolicy{
					Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
						MatchConstraints: &admissionregistrationv1.MatchResources{},
						Variables:        []admissionregistrationv1.Variable{{Name: "a", Expression: variable}},
						Mutations:        []admissionregistrationv1.Mutation{m},
					},
				},
			)
		}
	})
}
