package apiserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/certs"
)

// annotationsOf returns the audit annotations of the creation of an object, from the log of a stopped server.
func annotationsOf(t *testing.T, path, resource, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef != nil && e.ObjectRef.Resource == resource && e.ObjectRef.Name == name && e.Verb == "create" &&
			e.Stage == auditv1.StageResponseComplete {
			return e.Annotations
		}
	}
	t.Fatalf("nothing is kept of the creation of %s %s", resource, name)
	return nil
}

func TestPoliciesAddAuditAnnotations(t *testing.T) {
	c, path := startAudited(t, auditPolicy)
	cfg := c.configFor(certs.Admin())
	createConfiguration(t, cfg, admissionPath+"validatingadmissionpolicies", policyObject(
		"ValidatingAdmissionPolicy",
		"p",
		`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"auditAnnotations":[{"key":"same","valueExpression":"'one'"},{"key":"each","valueExpression":"string(params.metadata.name)"},{"key":"none","valueExpression":"null"}],`+
			`"validations":[{"expression":"true"},{"expression":"object.data.nope == ''"},{"expression":"params.metadata.name != 'b'","message":"not b"}]`,
	))
	for _, name := range []string{"a", "b"} {
		if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+name+`"}}`); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
		createConfiguration(t, cfg, admissionPath+"validatingadmissionpolicybindings", bindingObject(
			"ValidatingAdmissionPolicyBinding", name, "p",
			`,"validationActions":["Audit"],"paramRef":{"name":"`+name+`","parameterNotFoundAction":"Deny"}`))
	}
	if code, text := sendRequest(t, cfg, "POST", mapsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}`); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	c.stop()
	got := annotationsOf(t, path, "configmaps", "x")
	if got["p/same"] != "one" || got["p/each"] != "a, b" {
		t.Errorf("the policy's own annotations: %q", got)
	}
	if _, ok := got["p/none"]; ok {
		t.Error("an annotation is there that is to be left out")
	}
	var failures []struct {
		Message, Policy, Binding string
		Index                    int      `json:"expressionIndex"`
		Actions                  []string `json:"validationActions"`
	}
	if err := json.Unmarshal([]byte(got["validation.policy.admission.k8s.io/validation_failure"]),
		&failures); err != nil {
		t.Fatal(err)
	}
	if len(failures) != 3 || failures[0].Index != 1 || failures[0].Binding != "a" || failures[1].Binding != "b" ||
		failures[2].Index != 2 ||
		failures[2].Message != "not b" {
		t.Errorf("failures: %+v", failures)
	}
}
