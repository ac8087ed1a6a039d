package custom

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/kinds"
)

// FuzzDefinition converts valid definitions to kinds, and decodes objects of these kinds.
func FuzzDefinition(f *testing.F) {
	const head = `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"versions":[{"name":"v1","served":true,"storage":true,`
	f.Add(
		[]byte(
			head+`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.a > 1"}],"properties":{"a":{"type":"integer","default":2,"minimum":1}}}}}},"subresources":{"status":{},"scale":{"specReplicasPath":".spec.a","statusReplicasPath":".status.a"}},"additionalPrinterColumns":[{"name":"A","type":"integer","jsonPath":".spec.a"}]}]}}`,
		),
		[]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"a":3,"b":4}}`),
	)
	f.Add([]byte(head+`"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`),
		[]byte(`{"x":[1,{"y":null}]}`))
	var definitions *kinds.Kind
	for _, k := range kinds.All() {
		if k.GVK.Kind == "CustomResourceDefinition" {
			definitions = k
		}
	}
	f.Fuzz(func(t *testing.T, text, object []byte) {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if kjson.UnmarshalCaseSensitivePreserveInts(text, d) != nil {
			return
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
		u := &unstructured.Unstructured{}
		if kjson.UnmarshalCaseSensitivePreserveInts(object, &u.Object) != nil || u.Object == nil {
			return
		}
		if _, err := k.Untyped.Accept(u); err != nil {
			return
		}
		if k.Validate != nil {
			k.Validate(u)
		}
		if k.ValidateUpdate != nil {
			k.ValidateUpdate(u.DeepCopy(), u)
		}
		if k.Row != nil {
			k.Row(u)
		}
		if k.Scale != nil {
			k.Scale.Get(u)
		}
	})
}
