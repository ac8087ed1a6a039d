package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"clusterctl/daemons/kinds/expression"
)

// definitionVersion is one version of a definition, with its compiled schema.
type definitionVersion struct {
	spec             *apiextensionsv1.CustomResourceDefinitionVersion
	gvk              schema.GroupVersionKind
	preservesUnknown bool // keep unknown fields everywhere
	structural       *structural.Structural
	schema           validation.SchemaValidator
	status           validation.SchemaValidator // nil if the schema has no status
	statusDefaults   *structural.Structural     // the schema of the status, if it has defaults; otherwise nil
	// rules compiles the rules at the first call; nil if there are none.
	rules func() *cel.Validator
}

func newDefinitionVersion(
	d *apiextensionsv1.CustomResourceDefinition,
	spec *apiextensionsv1.CustomResourceDefinitionVersion,
) (*definitionVersion, error) {
	v := &definitionVersion{
		spec: spec, preservesUnknown: d.Spec.PreserveUnknownFields,
		gvk: schema.GroupVersionKind{Group: d.Spec.Group, Version: spec.Name, Kind: d.Status.AcceptedNames.Kind},
	}
	if spec.Schema == nil || spec.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("it has no schema")
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		spec.Schema.OpenAPIV3Schema.DeepCopy(), props, nil); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	var err error
	if v.structural, err = structural.NewStructural(props); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	if err := defaulting.PruneDefaults(v.structural); err != nil {
		return nil, fmt.Errorf("read the schema's defaults: %w", err)
	}
	if v.schema, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	if status, ok := props.Properties["status"]; ok {
		if v.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, fmt.Errorf("read the status's schema: %w", err)
		}
	}
	if status, ok := v.structural.Properties["status"]; ok && hasDefaults(&status) {
		v.statusDefaults = &structural.Structural{Properties: map[string]structural.Structural{"status": status}}
	}
	v.rules = sync.OnceValue(func() *cel.Validator {
		expression.Environment() // the validator takes it from the library's cache
		return cel.NewValidator(v.structural, true, celconfig.PerCallLimit)
	})
	return v, nil
}

// coerceAndPrune coerces and prunes an object that a client sent. It returns the unknown fields.
func (v *definitionVersion) coerceAndPrune(u *unstructured.Unstructured) (unknown []string, err error) {
	m, found, odd, err := objectmeta.GetObjectMetaWithOptions(u.Object,
		objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	if found {
		if err := objectmeta.SetObjectMeta(u.Object, m); err != nil {
			return nil, err
		}
	}
	wrong, inner := objectmeta.CoerceWithOptions(nil, u.Object, v.structural, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if wrong != nil {
		return nil, wrong
	}
	unknown = append(odd, inner...)
	if !v.preservesUnknown {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, v.structural, true,
			structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	}
	v.setDefaults(u)
	return unknown, nil
}

func (v *definitionVersion) prune(u *unstructured.Unstructured) {
	if !v.preservesUnknown {
		pruning.Prune(u.Object, v.structural, true)
	}
}

// setDefaults sets defaults for absent fields, and for nulls that are not allowed.
func (v *definitionVersion) setDefaults(u *unstructured.Unstructured) {
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, v.structural)
	defaulting.Default(u.Object, v.structural)
}

// hasDefaults reports whether a schema has defaults at any depth.
func hasDefaults(s *structural.Structural) bool {
	if s == nil {
		return false
	}
	for _, p := range s.Properties {
		if hasDefaults(&p) {
			return true
		}
	}
	return s.Default.Object != nil || hasDefaults(s.Items) ||
		s.AdditionalProperties != nil && hasDefaults(s.AdditionalProperties.Structural)
}

// withStatusDefaults returns the object with the defaults of its status. A create drops the sent status together with
// its defaults, so the stored object has none. Readers get the defaults nevertheless.
func (v *definitionVersion) withStatusDefaults(u *unstructured.Unstructured) *unstructured.Unstructured {
	if v.statusDefaults == nil {
		return u
	}
	whole := map[string]any{}
	if status, exists := u.Object["status"]; exists {
		whole["status"] = runtime.DeepCopyJSONValue(status)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(whole, v.statusDefaults)
	defaulting.Default(whole, v.statusDefaults)
	status, exists := whole["status"]
	if !exists || equality.Semantic.DeepEqual(status, u.Object["status"]) {
		return u
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	// The copy's resource version will be set, and the original must not change.
	if metadata, ok := u.Object["metadata"].(map[string]any); ok {
		out.Object["metadata"] = maps.Clone(metadata)
	}
	out.Object["status"] = status
	return out
}

// convertFrom converts an object of any version to this version.
func (v *definitionVersion) convertFrom(u *unstructured.Unstructured) {
	u.SetGroupVersionKind(v.gvk)
	// Malformed metadata is dropped, because the object must stay readable.
	if m, found, err := objectmeta.GetObjectMeta(u.Object, true); err == nil && found {
		_ = objectmeta.SetObjectMeta(u.Object, m) // see above
	}
	_ = objectmeta.Coerce(nil, u.Object, v.structural, false, true) // see above
	v.prune(u)
	v.setDefaults(u)
}

// validate returns the errors of an object, or of its status only. old is nil for a new object. Errors that old had
// already are ignored, if the value has not changed.
func (v *definitionVersion) validate(obj, old runtime.Object, statusOnly bool) field.ErrorList {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("a %T is not unstructured", obj))}
	}
	ctx := context.Background()
	previous, _ := old.(*unstructured.Unstructured)
	var errs field.ErrorList
	var celOptions []cel.Option
	var before any
	if previous == nil {
		errs = validation.ValidateCustomResource(nil, u.Object, v.schema)
	} else {
		correlated := common.NewCorrelatedObject(u.Object, previous.Object, &model.Structural{Structural: v.structural})
		celOptions = append(celOptions, cel.WithRatcheting(correlated))
		before = previous.Object
		if !statusOnly {
			errs = validation.ValidateCustomResourceUpdate(nil, u.Object, previous.Object, v.schema,
				validation.WithRatcheting(correlated))
		} else if status, exists := u.Object["status"]; exists && v.status != nil {
			errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, previous.Object["status"],
				v.status, validation.WithRatcheting(correlated.Key("status")))
		}
	}
	errs = append(errs, v.validateScale(u)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, v.structural, false)...)
	if previous == nil || len(listtype.ValidateListSetsAndMaps(nil, v.structural, previous.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, u.Object)...)
	}
	rules := v.rules()
	if rules == nil {
		return errs
	}
	if blocksRules(errs) {
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was "+
			"invalid; correct the existing errors to complete validation"))
	}
	broken, _ := rules.Validate(ctx, nil, v.structural, u.Object, before, celconfig.RuntimeCELCostBudget, celOptions...)
	return append(errs, broken...)
}

// blocksRules reports whether errors could make the evaluation of rules fail.
func blocksRules(errs field.ErrorList) bool {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported,
			field.ErrorTypeRequired,
			field.ErrorTypeTooLong,
			field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

// validateScale returns errors for invalid numbers of replicas.
func (v *definitionVersion) validateScale(u *unstructured.Unstructured) field.ErrorList {
	if v.spec.Subresources == nil || v.spec.Subresources.Scale == nil {
		return nil
	}
	var errs field.ErrorList
	s := v.spec.Subresources.Scale
	for _, path := range []string{s.SpecReplicasPath, s.StatusReplicasPath} {
		n, _, err := unstructured.NestedInt64(u.Object, splitPath(path)...)
		where := field.NewPath(path)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(where, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(where, n, "should be a non-negative integer"))
		case n > 1<<31-1:
			errs = append(errs, field.Invalid(where, n, "should be less than or equal to 2147483647"))
		}
	}
	return errs
}

// publishedSchema returns the schema as published in OpenAPI. Version 2 supports fewer features.
func (v *definitionVersion) publishedSchema(v3 bool) (map[string]any, error) {
	shape := v.structural
	if !v3 {
		shape = openapiv2.ToStructuralOpenAPIV2(shape)
	}
	data, err := json.Marshal(shape.ToKubeOpenAPI())
	if err != nil {
		return nil, fmt.Errorf("encode the schema of %s: %w", v.gvk, err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("encode the schema of %s: %w", v.gvk, err)
	}
	switch {
	case !v3 && (v.preservesUnknown || v.structural.XPreserveUnknownFields):
		return map[string]any{"type": "object"}, nil // kubectl would refuse unknown fields if any field were declared
	case v.preservesUnknown:
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}, nil
	}
	properties, _ := out["properties"].(map[string]any)
	out["properties"] = maps.Clone(properties)
	if properties == nil {
		out["properties"] = map[string]any{}
	}
	return out, nil
}
