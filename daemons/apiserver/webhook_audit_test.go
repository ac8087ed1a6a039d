package apiserver_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"clusterctl/certs"
)

func TestMutatingWebhooksAddAuditAnnotations(t *testing.T) {
	c, path := startAudited(t, auditPolicy)
	cfg := c.configFor(certs.Admin())
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/label": func(*admissionv1.AdmissionRequest) string {
			return encodedPatch(`[{"op":"add","path":"/metadata/labels","value":{"a":"correct-horse"}}]`)
		},
		"/look": func(*admissionv1.AdmissionRequest) string { return `"allowed":true` },
		"/fail": func(*admissionv1.AdmissionRequest) string { return "fail" },
	})
	const rules = `,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps","secrets"],"operations":["CREATE"]}],"matchConditions":[{"name":"ours","expression":"object.metadata.name == 'x'"}]`
	createConfiguration(t, cfg, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m", h.webhookConfig(
		"label.example.com", "/label", rules), h.webhookConfig("look.example.com", "/look", rules), h.webhookConfig(
		"fail.example.com", "/fail", rules+`,"failurePolicy":"Ignore"`)))
	for kind, path := range map[string]string{"ConfigMap": mapsPath, "Secret": "/api/v1/namespaces/default/secrets"} {
		if code, text := sendRequest(t, cfg, "POST", path, `{"apiVersion":"v1","kind":"`+kind+`","metadata":{"name":"x"}}`); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	c.stop()
	const label, look = `{"configuration":"m","webhook":"label.example.com"`, `{"configuration":"m","webhook":"look.example.com"`
	for resource, patch := range map[string]string{
		"configmaps": label + `,"patch":[{"op":"add","path":"/metadata/labels","value":{"a":"correct-horse"}}],"patchType":"JSONPatch"}`,
		"secrets":    "",
	} {
		got := annotationsOf(t, path, resource, "x")
		for key, want := range map[string]string{
			"mutation.webhook.admission.k8s.io/round_0_index_0":             label + `,"mutated":true}`,
			"mutation.webhook.admission.k8s.io/round_0_index_1":             look + `,"mutated":false}`,
			"mutation.webhook.admission.k8s.io/round_0_index_2":             strings.Replace(look, "look", "fail", 1) + `,"mutated":false}`,
			"failed-open.mutation.webhook.admission.k8s.io/round_0_index_2": "fail.example.com",
			"patch.webhook.admission.k8s.io/round_0_index_0":                patch,
			"patch.webhook.admission.k8s.io/round_0_index_1":                "",
		} {
			if got[key] != want {
				t.Errorf("%s: %s is %q, want %q", resource, key, got[key], want)
			}
		}
	}
}
