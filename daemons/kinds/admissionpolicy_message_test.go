package kinds

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLineBreaksInExpressionsAndMessages checks line breaks in a policy's expressions and messages.
func TestLineBreaksInExpressionsAndMessages(t *testing.T) {
	for name, c := range map[string]struct{ expression, message, want string }{
		"one line":                         {"true", "", ""},
		"several lines":                    {"true\n&& true", "", ""},
		"several lines, a message":         {"true\n&& true", "no", ""},
		"a message of several lines":       {"true", "a\nb", "message must not contain line breaks"},
		"a message that ends in a newline": {"true", "a\n", ""},
		"a message of spaces":              {"true", " ", "message must be non-empty if specified"},
	} {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
						{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"pods"}}}}}},
				Validations: []admissionregistrationv1.Validation{{Expression: c.expression, Message: c.message}},
			}}
		for _, k := range All() {
			if k.GVK.Kind != "ValidatingAdmissionPolicy" {
				continue
			}
			k.Default(policy)
			errs := k.Validate(policy)
			if text := errs.ToAggregate(); (text == nil) != (c.want == "") ||
				text != nil && !strings.Contains(text.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, text, c.want)
			}
		}
	}
}
