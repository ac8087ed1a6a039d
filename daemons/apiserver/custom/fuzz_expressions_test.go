package custom

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/kinds"
)

// FuzzColumn shows arbitrary objects in columns with arbitrary paths.
func FuzzColumn(f *testing.F) {
	for _, path := range []string{".spec.a", `.status.conditions[?(@.type=="Ready")].status`, ".spec.list[-1:].b", ".spec..b", `.metadata.annotations.a\.b/c`, ".spec.list[0,1]", ".spec['a','list']", ".spec.list[*]"} {
		for _, kind := range []string{"string", "integer", "date"} {
			f.Add(
				path,
				kind,
				[]byte(
					`{"metadata":{"annotations":{"a.b/c":"d"}},"spec":{"a":1.5,"list":[{"b":"2020-01-01T00:00:00Z"},{"b":null},3]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
				),
			)
		}
	}
	f.Fuzz(func(t *testing.T, path, kind string, object []byte) {
		show := cellFunc(apiextensionsv1.CustomResourceColumnDefinition{Name: "A", Type: kind, JSONPath: path})
		var content map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(object, &content) != nil || content == nil {
			return
		}
		if _, err := json.Marshal(show(content)); err != nil {
			t.Errorf("what %q shows cannot be sent: %v", path, err)
		}
	})
}

// FuzzRule validates arbitrary objects, and their changes, by arbitrary rules in CEL.
func FuzzRule(f *testing.F) {
	for _, rule := range []string{
		"self.a > 1", "self.list.all(x, x.b != '')", "self == oldSelf", "self.list.map(x, x.b).join(',').size() < " +
			"10", "has(self.text) && self.text.matches('^a+$')",
		"quantity(self.text).isGreaterThan(quantity('1'))", "url(self.text).getHost() == " +
			"'a'", "self.any.a[0] == 1", "isIP(self.text) && " +
			"ip(self.text).isLoopback()", "oldSelf.orValue({}).size() == 0",
		"self.list.exists_one(x, x.b == self.text)", "duration(self.text) < " +
			"duration('1h')", "semver(self.text).major() > 1",
	} {
		f.Add(rule, []byte(`{"a":3,"list":[{"b":"c"}],"text":"1","any":{"a":[1]}}`),
			[]byte(`{"a":2,"text":"https://a/b"}`))
	}
	const head = `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"versions":[{"name":"v1","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":RULE}],"properties":{"a":{"type":"integer"},"text":{"type":"string","maxLength":100},"list":{"type":"array","maxItems":10,"items":{"type":"object","properties":{"b":{"type":"string","maxLength":10}}}},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}]}}`
	var definitions *kinds.Kind
	for _, k := range kinds.All() {
		if k.GVK.Kind == "CustomResourceDefinition" {
			definitions = k
		}
	}
	f.Fuzz(func(t *testing.T, rule string, spec, old []byte) {
		quoted, err := json.Marshal(rule)
		if err != nil {
			return
		}
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(strings.Replace(head, "RULE", string(quoted), 1)),
			d); err != nil {
			t.Fatal(err)
		}
		definitions.Default(d)
		definitions.PrepareCreate(d)
		if len(definitions.Validate(d)) > 0 {
			return
		}
		d.Status = NewStatus(d, NamesOf([]*apiextensionsv1.CustomResourceDefinition{d}), time.Now())
		k, err := NewKind(d, nil)
		if err != nil {
			return
		}
		accepted := func(text []byte) *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			if kjson.UnmarshalCaseSensitivePreserveInts(
				[]byte(
					`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":`+string(text)+`}`,
				),
				&u.Object,
			) != nil {
				return nil
			}
			if _, err := k.Untyped.Accept(u); err != nil {
				return nil
			}
			return u
		}
		now, before := accepted(spec), accepted(old)
		if now == nil || before == nil || k.Validate == nil || k.ValidateUpdate == nil {
			return
		}
		k.Validate(now)
		k.ValidateUpdate(now, before)
	})
}
