// Package extensions declares the kinds that extend the API: CustomResourceDefinitions, APIServices, admission webhooks
// and admission policies.
package extensions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemas "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/kinds/kind"
)

// toInternal converts a definition to the internal type, which upstream's validation takes.
var toInternal = apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition

// CustomResourceDefinitions declares the kind that declares further kinds. The API server serves those once their names
// are accepted.
func CustomResourceDefinitions() *kind.Kind {
	type crd = *apiextensionsv1.CustomResourceDefinition
	return &kind.Kind{
		GVK:      apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
		Resource: "customresourcedefinitions", Singular: "customresourcedefinition", ConditionalUpdate: true,
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		// The group is part of the storage key, as upstream does it.
		StorageKey: "apiextensions.k8s.io/customresourcedefinitions",
		New:        kind.New[apiextensionsv1.CustomResourceDefinition](),
		NewList:    kind.New[apiextensionsv1.CustomResourceDefinitionList](),
		Default:    kind.Adapt(defaultDefinition),
		// The definition's objects are deleted before it.
		Finalizers:    []string{apiextensionsv1.CustomResourceCleanupFinalizer},
		HasGeneration: true,
		PrepareCreate: kind.Adapt(func(d crd) {
			d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
			recordStored(d)
		}),
		PrepareUpdate:  kind.AdaptUpdate(func(d, _ crd) { recordStored(d) }),
		Validate:       kind.AdaptValidate(validateDefinition),
		ValidateUpdate: kind.AdaptValidateUpdate(validateDefinitionUpdate),
		Warnings:       func(obj, _ runtime.Object) []string { return definitionWarnings(obj) },
		Status: &kind.Status{
			Copy: func(to, from runtime.Object) {
				to.(crd).Status = *from.(crd).Status.DeepCopy()
			},
			Validate: kind.AdaptValidateUpdate(func(d, old crd) field.ErrorList {
				now, before, errs := internalDefinitions(d, old)
				if len(errs) > 0 {
					return errs
				}
				return validation.ValidateUpdateCustomResourceDefinitionStatus(context.Background(), now, before)
			}),
		},
		Columns: kind.NewColumns("Created At:date"),
		Row: kind.AdaptRow(func(d crd) []any {
			return []any{d.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")}
		}),
	}
}

func defaultDefinition(d *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(d)
	if c := d.Spec.Conversion; c.Webhook != nil && c.Webhook.ClientConfig != nil &&
		c.Webhook.ClientConfig.Service != nil {
		apiextensionsv1.SetDefaults_ServiceReference(c.Webhook.ClientConfig.Service)
	}
}

// recordStored adds the current storage version to storedVersions. Earlier versions stay, since objects may still be
// stored in them.
func recordStored(d *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range d.Spec.Versions {
		if v.Storage && !slices.Contains(d.Status.StoredVersions, v.Name) {
			d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
		}
	}
}

func validateDefinition(d *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	now, _, errs := internalDefinitions(d, d)
	if len(errs) > 0 {
		return errs
	}
	return validation.ValidateCustomResourceDefinition(context.Background(), now)
}

func validateDefinitionUpdate(d, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	now, before, errs := internalDefinitions(d, old)
	if len(errs) > 0 {
		return errs
	}
	return validation.ValidateCustomResourceDefinitionUpdate(context.Background(), now, before)
}

// internalDefinitions converts definitions to the internal form that upstream's validation needs. The validation
// evaluates rules of default values.
func internalDefinitions(
	d, old *apiextensionsv1.CustomResourceDefinition,
) (now, before *apiextensions.CustomResourceDefinition, errs field.ErrorList) {
	expression.Environment()
	now, before = &apiextensions.CustomResourceDefinition{}, &apiextensions.CustomResourceDefinition{}
	// The conversion may share memory with its input, so copy that.
	if err := toInternal(d.DeepCopy(), now, nil); err != nil {
		errs = append(errs, field.InternalError(field.NewPath("spec"), err))
	}
	if err := toInternal(old.DeepCopy(), before, nil); err != nil {
		errs = append(errs, field.InternalError(field.NewPath("spec"), err))
	}
	return now, before, errs
}

// definitionWarnings returns warnings about parts of schemas that have no effect.
func definitionWarnings(obj runtime.Object) []string {
	d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	now, _, errs := internalDefinitions(d, d)
	if len(errs) > 0 {
		return nil
	}
	seen := map[string]bool{}
	look := func(s *apiextensions.JSONSchemaProps) bool {
		typed := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
		for _, format := range schemas.GetUnrecognizedFormats(typed, environment.DefaultCompatibilityVersion()) {
			seen[fmt.Sprintf("unrecognized format %q", format)] = true
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil &&
			slices.Contains([]string{"object", "array"}, s.Items.Schema.Type) {
			seen[fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply "+
				"or CEL validation rules", s.Items.Schema.Type)] = true
		}
		return false // continue the walk
	}
	if v := now.Spec.Validation; v != nil && v.OpenAPIV3Schema != nil {
		validation.SchemaHas(v.OpenAPIV3Schema, look)
	}
	for _, v := range now.Spec.Versions {
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, look)
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
