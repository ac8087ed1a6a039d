package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects of another kind or version than the path's, or without one, are refused with upstream's errors.
// Proves S12.
func TestObjectsOfAnotherKindAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	const (
		maps      = "/api/v1/namespaces/default/configmaps"
		merge     = "application/merge-patch+json"
		strategic = "application/strategic-merge-patch+json"
		js        = "application/json-patch+json"
		bad       = metav1.StatusReasonBadRequest
		invalid   = metav1.StatusReasonInvalid
	)
	for _, made := range [][2]string{{maps, `{"metadata":{"name":"m"},"data":{"a":"b"}}`}, {cronTabPath, cronTabObject("c", "")}} {
		if code, text := sendRequest(t, cfg, "POST", made[0], made[1]); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	for _, c := range []struct {
		method, path, kind, body string
		code                     int32
		reason                   metav1.StatusReason
		message                  string
	}{
		{"POST", maps, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, bad, `Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"POST", maps, "", `{"kind":"Secret","apiVersion":"v1","data":7}`, 400, bad, `Secret in version "v1" cannot be handled as a ConfigMap: `},
		{"POST", maps, "", `{"kind":"configmap"}`, 400, bad, `configmap in version "v1" cannot be handled as a ConfigMap: no kind "configmap" is registered for version "v1"`},
		{"PUT", maps + "/m", "", `{"kind":"ConfigMap","apiVersion":"apps/v1"}`, 400, bad, `ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1"`},
		{"POST", "/apis/apps/v1/namespaces/default/deployments", "", `{"kind":"Deployment","apiVersion":"apps/v1beta1"}`, 400, bad, `the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)`},
		{"POST", "/api/v1/namespaces/default/events", "", `{"kind":"Event","apiVersion":"events.k8s.io/v1"}`, 400, bad, `the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)`},
		{"POST", definitionsPath, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, bad, `Secret in version "v1" cannot be handled as a CustomResourceDefinition: converting (v1.Secret) to (apiextensions.CustomResourceDefinition): unknown conversion`},
		{"POST", maps, "", `[]`, 400, bad, `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct `},
		{"POST", maps, "", `[]`, 400, bad, `(5b5d)`},
		{"POST", maps, "", `{"kind":"ConfigMap","apiVersion":"a/b/c"}`, 400, bad, `the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({"kind":"ConfigMap","apiVersio ...)`},
		{"POST", cronTabPath, "", `{"kind":"Frob","apiVersion":"stable.example.com/v1","metadata":{"name":"f"}}`, 422, invalid, `Frob.stable.example.com "f" is invalid: kind: Invalid value: "Frob": must be CronTab`},
		{"POST", cronTabPath, "", `{"kind":"Frob","apiVersion":"v1","metadata":{"name":"f"}}`, 400, bad, `the API version in the data (v1) does not match the expected API version (stable.example.com/v1)`},
		{"POST", cronTabPath, "", `{"kind":"CronTab"}`, 400, bad, `the API version in the data () does not match the expected API version (stable.example.com/v1)`},
		{"POST", cronTabPath, "", `{"a":1}`, 400, bad, `the object provided is unrecognized (must be of type CronTab): Object 'Kind' is missing in '{"a":1}' ({"a":1})`},
		{"POST", cronTabPath, "", `{`, 400, bad, `the object provided is unrecognized (must be of type CronTab): couldn't get version/kind; json parse error: unexpected end of JSON input ({)`},

		{"PATCH", maps + "/m", merge, `{"kind":"Secret"}`, 422, invalid, `converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"PATCH", maps + "/m", merge, `{"apiVersion":"v7"}`, 400, bad, `(v7)`},
		{"PATCH", maps + "/m", js, `[{"op":"replace","path":"/kind","value":"Frob"}]`, 422, invalid, `no kind "Frob" is registered for version "v1"`},
		{"PATCH", maps + "/m", strategic, `{"kind":"Secret","apiVersion":"apps/v1","data":{"a":"c"}}`, 200, "", ""},
		{"PATCH", maps + "/m", strategic, `{"kind":5}`, 422, invalid, `patch: Invalid value: "map[kind:5]": `},
		{"PATCH", maps + "/m", strategic, `{"data":{"$patch":"frob"}}`, 500, "", `frob`},
		{"PATCH", maps + "/m", strategic, `[]`, 400, bad, `json: cannot unmarshal array into Go value of type map[string]interface {}`},
		{"PATCH", maps + "/nobody", merge, `{`, 400, bad, `invalid JSON patch`},
		{"PATCH", cronTabPath + "/c", merge, `{"kind":"Frob","apiVersion":"stable.example.com/v1beta1"}`, 422, invalid, `Frob.stable.example.com "c" is invalid: [kind: Invalid value: "Frob": must be CronTab, apiVersion: Invalid value: "stable.example.com/v1beta1": must be stable.example.com/v1]`},
		{"PATCH", cronTabPath + "/c", js, `[{"op":"remove","path":"/kind"}]`, 422, invalid, `Object 'Kind' is missing in '{`},
	} {
		if c.kind == "" {
			c.kind = "application/json"
		}
		code, text := sendRequest(t, cfg, c.method, c.path, c.body, "Content-Type", c.kind)
		var got metav1.Status
		if err := json.Unmarshal([]byte(text), &got); err != nil || int32(code) != c.code || got.Reason != c.reason ||
			!strings.Contains(got.Message, c.message) {
			t.Errorf("%s %s %s: %d %s %s, want %d %s %s", c.method, c.path, c.body, code, got.Reason, got.Message,
				c.code, c.reason, c.message)
		}
		if c.code == 200 && !strings.Contains(text, `{"kind":"ConfigMap","apiVersion":"v1",`) {
			t.Errorf("%s %s: %s", c.path, c.body, text)
		}
	}
}
