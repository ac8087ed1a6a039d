package extensions

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestSchemasWithIneffectivePartsCauseWarnings(t *testing.T) {
	set := "set"
	nested := func(s apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
							Type:       "object",
							Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": s},
						},
					}}},
			},
		}
	}
	for want, s := range map[string]apiextensionsv1.JSONSchemaProps{
		"":                               {Type: "string", Format: "date-time"},
		`unrecognized format "nonsense"`: {Type: "string", Format: "nonsense"},
		`unrecognized format "int16"`:    {Type: "integer", Format: "int16"},
		`x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules`: {
			Type: "array", XListType: &set,
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}},
	} {
		var all []string
		if want != "" {
			all = []string{want}
		}
		if got := definitionWarnings(nested(s)); !slices.Equal(got, all) {
			t.Errorf("%+v: %q, want %q", s, got, all)
		}
	}
}
