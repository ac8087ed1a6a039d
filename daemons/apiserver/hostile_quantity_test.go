package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

// The rules of a definition may parse texts of its objects as quantities. Only the texts that they parse are bounded.
func TestRulesOfDefinitionsDoNotParseHugeQuantities(t *testing.T) {
	for _, row := range []struct {
		rule, color string
		code        int
		text        string
	}{
		{"isQuantity(self)", "1e-999999999", http.StatusUnprocessableEntity, "color is immutable"},
		{"!isQuantity(self)", "1e-999999999", http.StatusCreated, ""},
		{"quantity(self).isGreaterThan(quantity('0'))", "1e-999999999", http.StatusUnprocessableEntity,
			"quantities must have at most"},
		{"quantity(self).isGreaterThan(quantity('0'))", "1e-9", http.StatusCreated, ""},
		{"quantity('1').isInteger() && self != ''", "12e4567", http.StatusCreated, ""}, // it is no quantity
	} {
		cfg := startConfig(t, stores["memory"](t), nil)
		createDefinition(t, cfg, strings.Replace(crontabs, "self == oldSelf", row.rule, 1), cronTabPath)
		code, text := sendRequest(t, cfg, "POST", cronTabPath, cronTabObject("a", `,"color":"`+row.color+`"`))
		if code != row.code || !strings.Contains(text, row.text) {
			t.Errorf("%s of %s: %d %s", row.rule, row.color, code, text)
		}
	}
}

const quotasPath = "/api/v1/namespaces/default/resourcequotas"

// annotatedQuota is a quota with a text that policies read.
const annotatedQuota = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"a",` +
	`"annotations":{"cpu":"1e-999999999"}},"spec":{"hard":{"cpu":"1"}}}`

// Policies may parse texts of objects as quantities, and may set quantities to them.
func TestPoliciesDoNotParseHugeQuantities(t *testing.T) {
	const value = "object.metadata.annotations['cpu']"
	for name, spec := range map[string]string{
		"validation": `,"validations":[{"expression":"quantity(` + value + `).isGreaterThan(quantity('0'))"}]`,
		"JSON patch": `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":` +
			`"[JSONPatch{op: 'replace', path: '/spec/hard/cpu', value: ` + value + `}]"}}]`,
		"merge": `,"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":` +
			`{"expression":"Object{spec: Object.spec{hard: {'cpu': ` + value + `}}}"}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := startConfig(t, stores["memory"](t), nil)
			kind, resources, more := "MutatingAdmissionPolicy", "mutatingadmissionpolicies", ""
			if name == "validation" {
				kind, resources, more = "ValidatingAdmissionPolicy", "validatingadmissionpolicies", `,"validationActions":["Deny"]`
			}
			policy := strings.Replace(policyObject(kind, "p", spec), `"resources":["configmaps"]`,
				`"resources":["resourcequotas"]`, 1)
			policy = strings.Replace(policy, `"operations":["*"]`, `"operations":["CREATE"]`, 1)
			createConfiguration(t, cfg, admissionPath+resources, policy)
			createConfiguration(t, cfg, admissionPath+strings.Replace(resources, "policies", "policybindings", 1),
				bindingObject(kind+"Binding", "p", "p", more))
			code, text := sendRequest(t, cfg, "POST", quotasPath, annotatedQuota)
			if code < 400 || !strings.Contains(text, "quantities must have at most") {
				t.Errorf("%d %s", code, text)
			}
		})
	}
}
