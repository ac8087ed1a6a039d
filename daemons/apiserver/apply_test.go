package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	applyType      = "application/apply-patch+yaml"
	deploymentPath = "/apis/apps/v1/namespaces/default/deployments"
)

func declaredDeployment(name, more string) string {
	return fmt.Sprintf(
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"A"}]}]}}%s}}`,
		name,
		more,
	)
}

func TestInvalidApplyRequestsAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const failed = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): "
	for _, c := range []struct {
		name, path, body string
		code             int
		want             []string
	}{
		{"made", "d?fieldManager=m", declaredDeployment("d", ""), 201, nil},
		{"an unknown field", "d?fieldManager=m", declaredDeployment("d", `,"nope":1`), 500, []string{failed + ".spec.nope: field not declared in schema"}},
		{"an unknown field, strictly", "d?fieldManager=m&fieldValidation=Strict", declaredDeployment("d", `,"nope":1`), 500, []string{failed + ".spec.nope: field not declared in schema"}},
		{"another type", "d?fieldManager=m", declaredDeployment("d", `,"replicas":"x"`), 500, []string{failed + ".spec.replicas: expected numeric (int or float), got string"}},
		{"an item twice", "d?fieldManager=m", strings.Replace(declaredDeployment("d", ""), `{"name":"A"}`, `{"name":"A"},{"name":"A"}`, 1), 500,
			[]string{failed + `.spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"A\"]`}},
		{"another version", "d?fieldManager=m", strings.Replace(declaredDeployment("d", ""), "apps/v1", "apps/v2", 1),
			400,
			[]string{`"message":"invalid object type: apps/v2, Kind=Deployment","reason":"BadRequest"`}},
		{"another kind", "d?fieldManager=m", strings.Replace(declaredDeployment("d", ""), "Deployment", "Other", 1),
			400, []string{"invalid object type: apps/v1, Kind=Other"}},
		{"an account of its own", "d?fieldManager=m", strings.Replace(declaredDeployment("d", ""), `"name":"d"`, `"name":"d","managedFields":[]`, 1), 400, []string{"metadata.managedFields must be nil"}},
		{"no YAML", "d?fieldManager=m", "a: b: c", 400, []string{`"error encoding patch: yaml:`}},
		{"no object", "d?fieldManager=m", "[]", 400, []string{`"error decoding patch: json: cannot unmarshal array`}},
		{"a key twice", "d?fieldManager=m", strings.Replace(declaredDeployment("d", ""), "{", `{"kind":"Deployment",`, 1), 200, nil},
		{"a key twice, strictly", "d?fieldManager=m&fieldValidation=Strict", strings.Replace(declaredDeployment("d", ""), "{", `{"kind":"Deployment",`, 1), 400,
			[]string{`"error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"kind\" already set in map"`}},
		{"a new one without a name", "e?fieldManager=m", strings.Replace(declaredDeployment("", ""), `"name":""`, `"generateName":"e-"`, 1), 400,
			[]string{"the name of the object (e based on URL) was undeterminable: name must be provided"}},
		{"another name", "d?fieldManager=m", declaredDeployment("e", ""), 400, []string{"the name of the object (e) " +
			"does not match the name on the URL (d)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := sendRequest(t, cfg, "PATCH", deploymentPath+"/"+c.path, c.body, "Content-Type", applyType)
			if code != c.code {
				t.Fatalf("%d: %s", code, body)
			}
			for _, want := range c.want {
				if !strings.Contains(body, want) {
					t.Errorf("no %q in\n%s", want, body)
				}
			}
		})
	}
}

// A manager that applies a Scale owns the replicas of the scaled object, with conflicts like any other field.
func TestApplyingAScaleOwnsTheReplicas(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	for _, kind := range []struct{ path, version, object string }{
		{deploymentPath, "apps/v1", declaredDeployment("s", `,"replicas":2`)},
		{cronTabPath, "stable.example.com/v1", cronTabObject("s", `,"replicas":2`)},
	} {
		one := kind.path + "/s"
		if code, body := sendRequest(t, cfg, "PATCH", one+"?fieldManager=one", kind.object, "Content-Type",
			applyType); code != 201 {
			t.Fatalf("%d: %s", code, body)
		}
		scale := func(replicas int) string {
			return fmt.Sprintf(
				`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"s"},"spec":{"replicas":%d}}`,
				replicas,
			)
		}
		const has = `"spec":{"replicas":3}`
		for _, c := range []struct {
			name, path, body string
			code             int
			want             string
		}{
			{"what another manager has is contended", one + "/scale?fieldManager=two", scale(3), 409, `conflict with \"one\": .spec.replicas`},
			{"unknown fields are refused", one + "/scale?fieldManager=two", strings.Replace(scale(3), `"replicas"`, `"other"`, 1), 500, ".spec.other: field not declared in schema"},
			{"so are other kinds", one + "/scale?fieldManager=two", kind.object, 400, "invalid object type: "},
			{"and fewer than none", one + "/scale?fieldManager=two&force=true", scale(-1), 422, "must be greater " +
				"than or equal to 0"},
			{"a dry run changes nothing", one + "/scale?fieldManager=two&force=true&dryRun=All", scale(3), 200, has},
			{"the same is shared", one + "/scale?fieldManager=two", scale(2), 200, `"spec":{"replicas":2}`},
			{"what is shared is contended", one + "/scale?fieldManager=two", scale(3), 409, `conflict with \"one\": .spec.replicas`},
			{"force takes it", one + "/scale?fieldManager=two&force=true", scale(3), 200, has},
			{"the object cannot have it back", one + "?fieldManager=one", kind.object, 409, `conflict with \"two\" with subresource \"scale\": .spec.replicas`},
			{"what is missing has no scale", kind.path + "/missing/scale?fieldManager=two", strings.Replace(scale(1), `"s"`, `"missing"`, 1), 404, "not found"},
		} {
			code, body := sendRequest(t, cfg, "PATCH", c.path, c.body, "Content-Type", applyType)
			if code != c.code || !strings.Contains(body, c.want) {
				t.Errorf("%s %s: %d: %s", kind.version, c.name, code, body)
			}
		}
		var obj metav1.PartialObjectMetadata
		_, body := sendRequest(t, cfg, "GET", one, "")
		if err := json.Unmarshal([]byte(body), &obj); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(obj.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == "two" && e.Operation == "Apply" && e.APIVersion == kind.version &&
				e.Subresource == "scale" &&
				string(e.FieldsV1.Raw) == `{"f:spec":{"f:replicas":{}}}`
		}) {
			t.Errorf("the applied fields have no manager: %s", body)
		}
	}
}

func TestManyWarningsAreCut(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	var unknown strings.Builder
	for i := range 40 {
		fmt.Fprintf(&unknown, `,"%02d%s":1`, i, strings.Repeat("x", 300))
	}
	few := declaredDeployment("w", `,"`+strings.Repeat("y", 3000)+`":1`)
	if code, body := sendRequest(t, cfg, "POST", deploymentPath+"?dryRun=All", few); code != 201 ||
		!strings.Contains(body, strings.Repeat("y", 3000)) {
		t.Errorf("a long warning alone: %d: %.4000s", code, body)
	}
	_, body := sendRequest(t, cfg, "POST", deploymentPath+"?dryRun=All", declaredDeployment("w", unknown.String()))
	if n, long := strings.Count(body, "unknown field"), strings.Contains(body, strings.Repeat("x", 256)); n != 16 ||
		long {
		t.Errorf("%d warnings, long ones %t", n, long)
	}
}

// Metadata that a status write cannot change is not owned by the writer either.
func TestStatusWritesDoNotOwnProtectedMetadata(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	const (
		more   = `"labels":{"a":"b"},"annotations":{"c":"d"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"1"}]`
		labels = `"f:labels":{"f:a":{}}`
		notes  = `"f:annotations":{"f:c":{}}`
		owners = `"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}`
	)
	for _, c := range []struct {
		path, object, status, owned string
		contains, lacks             []string
	}{
		{deploymentPath, declaredDeployment("s", ""), `{"replicas":3}`, `{"f:metadata":{` + notes + "," + owners + `},"f:status":{"f:replicas":{}}}`, []string{`"c":"d"`, `"name":"n"`}, []string{`"labels":{"a":"b"},"ann`}},
		{"/api/v1/namespaces/default/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"s"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, `{"message":"m"}`, `{"f:metadata":{` + notes + "," + labels + `},"f:status":{"f:message":{}}}`, []string{`"c":"d"`, `"a":"b"`}, []string{`"name":"n"`}},
		{cronTabPath, cronTabObject("s", ""), `{"replicas":3}`, `{"f:status":{"f:replicas":{}}}`, nil, []string{`"c":"d"`, `"a":"b"`, `"name":"n"`}},
		{"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"s"},"spec":{"priorityLevelConfiguration":{"name":"p"}}}`,
			`{"conditions":[{"type":"My","status":"True"}]}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"My\"}":{".":{},"f:status":{},"f:type":{}}}}}`, nil, []string{`"c":"d"`, `"a":"b"`, `"name":"n"`}},
	} {
		if code, body := sendRequest(t, cfg, "POST", c.path, c.object); code != 201 {
			t.Fatalf("%d: %s", code, body)
		}
		var head metav1.TypeMeta
		if err := json.Unmarshal([]byte(c.object), &head); err != nil {
			t.Fatal(err)
		}
		sent := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"s",%s},"status":%s}`, head.APIVersion,
			head.Kind, more, c.status)
		code, body := sendRequest(t, cfg, "PATCH", c.path+"/s/status?fieldManager=m", sent, "Content-Type", applyType)
		if code != 200 {
			t.Errorf("%s: %d: %s", c.path, code, body)
			continue
		}
		var obj metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(body), &obj); err != nil {
			t.Fatal(err)
		}
		for _, e := range obj.ManagedFields {
			if e.Manager == "m" && string(e.FieldsV1.Raw) != c.owned {
				t.Errorf("%s: owned %s, want %s", c.path, e.FieldsV1.Raw, c.owned)
			}
		}
		for _, want := range c.contains {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", c.path, want, body)
			}
		}
		for _, unwanted := range c.lacks {
			if strings.Contains(body, unwanted) {
				t.Errorf("%s: %s in %s", c.path, unwanted, body)
			}
		}
	}
}
