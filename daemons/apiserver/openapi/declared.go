package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"clusterctl/daemons/kinds"
)

// models returns references to the schemas of a resource and its list.
func (s *schemaSet) models(r servedResource) (one, list string) {
	if r.kind.Untyped != nil {
		name := s.prefix + schemaName(r)
		return name, name + "List"
	}
	one = s.prefix + s.define(typeOf(r.obj))
	if r.list == nil {
		return one, one
	}
	return one, s.prefix + s.define(typeOf(r.list))
}

// schemaName returns the name of a custom resource's schema: the group in reverse order, version and kind.
func schemaName(r servedResource) string {
	parts := strings.Split(r.gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + r.gvk.Version + "." + r.gvk.Kind
}

// declare adds the schemas of a custom resource: its own schema, with the fields that every object has.
func (s *schemaSet) declare(r servedResource) error {
	if r.kind.Untyped == nil {
		return nil
	}
	own, err := r.kind.Untyped.Schema(s.v3)
	if err != nil {
		return fmt.Errorf("describe %s: %w", r.gvk, err)
	}
	refer := func(t reflect.Type, text string) jsonObject {
		ref := jsonObject{"$ref": s.prefix + s.define(t)}
		if s.v3 {
			ref = jsonObject{"allOf": []jsonObject{ref}}
		}
		ref["description"] = text
		return ref
	}
	types := metav1.TypeMeta{}.SwaggerDoc()
	heads := func(metadata jsonObject) jsonObject {
		return jsonObject{
			"apiVersion": jsonObject{"type": "string", "description": types["apiVersion"]},
			"kind":       jsonObject{"type": "string", "description": types["kind"]},
			"metadata":   metadata,
		}
	}
	whole := func() jsonObject {
		return heads(refer(reflect.TypeFor[metav1.ObjectMeta](),
			metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
	}
	if properties, ok := own["properties"].(map[string]any); ok {
		for _, inner := range properties {
			s.embed(inner, whole)
		}
		maps.Copy(properties, whole())
	}
	own[gvkExtension] = []jsonObject{gvk(r.gvk)}
	name := schemaName(r)
	s.all[name] = own
	list := heads(refer(reflect.TypeFor[metav1.ListMeta](),
		metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"]))
	list["items"] = jsonObject{
		"type":        "array",
		"items":       jsonObject{"$ref": s.prefix + name},
		"description": "List of " + r.name + ". More info: " + conventionsURL,
	}
	listKind := r.gvk
	listKind.Kind = r.kind.NewList().GetObjectKind().GroupVersionKind().Kind
	s.all[name+"List"] = jsonObject{
		"type":        "object",
		"description": listKind.Kind + " is a list of " + r.gvk.Kind,
		"required":    []string{"items"},
		"properties":  list,
		gvkExtension:  []jsonObject{gvk(listKind)},
	}
	return nil
}

// conventionsURL is the page to which upstream's descriptions refer.
const conventionsURL = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"

// embed adds the fields that every object has to embedded whole objects within v. In version 2, embedded objects with
// unknown fields stay unchanged, because kubectl would refuse these fields otherwise.
func (s *schemaSet) embed(v any, whole func() jsonObject) {
	schema, ok := v.(map[string]any)
	if !ok {
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, inner := range properties {
		s.embed(inner, whole)
	}
	s.embed(schema["items"], whole)
	s.embed(schema["additionalProperties"], whole)
	if schema["x-kubernetes-embedded-resource"] != true ||
		!s.v3 && schema["x-kubernetes-preserve-unknown-fields"] == true {
		return
	}
	if properties == nil {
		properties = jsonObject{}
	}
	maps.Copy(properties, whole())
	schema["properties"] = properties
	required, _ := schema["required"].([]any)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(required, any(name)) {
			required = append(required, name)
		}
	}
	schema["required"] = required
}

// Models returns the schemas of a kind in all versions, with all schemas that they refer to, in the form that field
// managers need.
func Models(k *kinds.Kind) (map[string]*spec.Schema, error) {
	s := newSchemaSet(true)
	list := servedResources([]*kinds.Kind{k})
	if k.Untyped != nil {
		list = servedResources(k.Untyped.Family.Versions)
	}
	s.register(list)
	for _, r := range list {
		if err := s.declare(r); err != nil {
			return nil, err
		}
		s.models(r)
	}
	out := make(map[string]*spec.Schema, len(s.all))
	for name, model := range s.all {
		data, err := json.Marshal(model)
		if err != nil {
			return nil, fmt.Errorf("encode the schema %s: %w", name, err)
		}
		out[name] = &spec.Schema{}
		if err := json.Unmarshal(data, out[name]); err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
	}
	return out, nil
}
