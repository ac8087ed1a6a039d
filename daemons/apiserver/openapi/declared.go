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
func (s *schemas) models(r resource) (one, list string) {
	if r.kind.Untyped != nil {
		name := s.prefix + declaredName(r)
		return name, name + "List"
	}
	one = s.prefix + s.define(typeOf(r.obj))
	if r.list == nil {
		return one, one
	}
	return one, s.prefix + s.define(typeOf(r.list))
}

// declaredName is the name of a declared kind's schema: the group turned around.
func declaredName(r resource) string {
	parts := strings.Split(r.gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + r.gvk.Version + "." + r.gvk.Kind
}

// declare adds the schemas of a kind that a definition declares: its own schema, with
// what every object has.
func (s *schemas) declare(r resource) error {
	if r.kind.Untyped == nil {
		return nil
	}
	own, err := r.kind.Untyped.Schema(s.v3)
	if err != nil {
		return fmt.Errorf("describe %s: %w", r.gvk, err)
	}
	refer := func(t reflect.Type, text string) object {
		ref := object{"$ref": s.prefix + s.define(t)}
		if s.v3 {
			ref = object{"allOf": []object{ref}}
		}
		ref["description"] = text
		return ref
	}
	heads := func(metadata object) object {
		return object{
			"apiVersion": object{"type": "string", "description": "The version of the API that the object is written in."},
			"kind":       object{"type": "string", "description": "The kind of the object."},
			"metadata":   metadata,
		}
	}
	if properties, ok := own["properties"].(map[string]any); ok {
		maps.Copy(properties, heads(refer(reflect.TypeFor[metav1.ObjectMeta](), "Standard object's metadata.")))
	}
	own[extension] = []object{gvk(r.gvk)}
	name := declaredName(r)
	s.all[name] = own
	list := heads(refer(reflect.TypeFor[metav1.ListMeta](), "Standard list metadata."))
	list["items"] = object{"type": "array", "items": object{"$ref": s.prefix + name}, "description": "The objects."}
	listKind := r.gvk
	listKind.Kind = r.kind.NewList().GetObjectKind().GroupVersionKind().Kind
	s.all[name+"List"] = object{"type": "object", "required": []string{"items"}, "properties": list, extension: []object{gvk(listKind)}}
	return nil
}

// Models returns the schemas of a kind, in all versions, and all that they refer to, as
// those who keep account of its fields read them.
func Models(k *kinds.Kind) (map[string]*spec.Schema, error) {
	s := newSchemas(true)
	list := resources([]*kinds.Kind{k})
	if k.Untyped != nil {
		list = resources(k.Untyped.Family.Versions)
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
