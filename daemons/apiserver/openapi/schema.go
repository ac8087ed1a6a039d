package openapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// atomic and merging hold merge rules of every object's metadata, which the Go types state only in comments. atomic
// lists types that are owned as a whole. merging defines how lists merge.
var (
	atomicTypes = map[reflect.Type]bool{
		reflect.TypeFor[metav1.OwnerReference](): true,
		reflect.TypeFor[metav1.LabelSelector]():  true,
	}
	mergeExtensions = map[reflect.Type]map[string]jsonObject{reflect.TypeFor[metav1.ObjectMeta](): {
		"ownerReferences": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"uid"}},
		"finalizers":      {"x-kubernetes-list-type": "set"},
		"managedFields":   {"x-kubernetes-list-type": "atomic"},
	}}
)

// jsonObject is a JSON object of a document.
type jsonObject = map[string]any

// schemaSet are made from Go types by reflection: names and required fields from json tags, descriptions from
// SwaggerDoc, and merge rules from patch tags.
type schemaSet struct {
	prefix string // prefix of references
	v3     bool
	all    jsonObject
	kinds  map[reflect.Type][]schema.GroupVersionKind
}

func newSchemaSet(v3 bool) *schemaSet {
	s := &schemaSet{prefix: "#/definitions/", v3: v3, all: jsonObject{},
		kinds: map[reflect.Type][]schema.GroupVersionKind{}}
	if v3 {
		s.prefix = "#/components/schemas/"
	}
	return s
}

// These are interfaces by which types describe themselves.
type (
	modelNamed        interface{ OpenAPIModelName() string }
	schemaTyped       interface{ OpenAPISchemaType() []string }
	schemaFormatted   interface{ OpenAPISchemaFormat() string }
	oneOfTyped        interface{ OpenAPIV3OneOfTypes() []string }
	swaggerDocumented interface{ SwaggerDoc() map[string]string }
)

// typeName returns a type's name among the schemas: its package's host in reverse order, path and type name.
func typeName(t reflect.Type) string {
	if n, ok := reflect.Zero(t).Interface().(modelNamed); ok {
		return n.OpenAPIModelName()
	}
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

// reference returns the schema of a type when it is used in a field.
func (s *schemaSet) reference(t reflect.Type) jsonObject {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return jsonObject{"type": "string", "format": "date-time"}
	}
	_, ok := reflect.Zero(t).Interface().(schemaTyped)
	if t.Kind() == reflect.Struct || ok {
		n := s.define(t)
		return jsonObject{"$ref": s.prefix + n}
	}
	switch t.Kind() {
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Int64, reflect.Int, reflect.Uint64, reflect.Uint32, reflect.Uint:
		return jsonObject{"type": "integer", "format": "int64"}
	case reflect.Int32, reflect.Int16, reflect.Int8, reflect.Uint8, reflect.Uint16:
		return jsonObject{"type": "integer", "format": "int32"}
	case reflect.Float32, reflect.Float64:
		return jsonObject{"type": "number", "format": "double"}
	case reflect.String:
		return jsonObject{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return jsonObject{"type": "string", "format": "byte"}
		}
		return jsonObject{"type": "array", "items": s.item(t.Elem())}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": s.item(t.Elem())}
	}
	return jsonObject{"type": "object"}
}

// item returns the schema of the items of a list or map. In version 3, a reference needs allOf to have a default beside
// it.
func (s *schemaSet) item(t reflect.Type) jsonObject {
	out := s.reference(t)
	if s.v3 {
		if ref, ok := out["$ref"]; ok {
			return jsonObject{"allOf": []jsonObject{{"$ref": ref}}, "default": jsonObject{}}
		}
	}
	return out
}

// define adds the schema of a named type, once, and returns its name.
func (s *schemaSet) define(t reflect.Type) string {
	n := typeName(t)
	if _, ok := s.all[n]; ok {
		return n
	}
	out := jsonObject{}
	s.all[n] = out // before its fields, which may refer back to it
	zero := reflect.Zero(t).Interface()
	if d, ok := zero.(swaggerDocumented); ok {
		if text := d.SwaggerDoc()[""]; text != "" {
			out["description"] = text
		}
	}
	switch self, ok := zero.(schemaTyped); {
	case ok:
		s.describeSelfEncoded(out, self, zero)
	case t.Kind() == reflect.Struct:
		out["type"] = "object"
		properties, required := jsonObject{}, []string{}
		s.fields(t, properties, &required)
		if len(properties) > 0 {
			out["properties"] = properties
		}
		if len(required) > 0 {
			slices.Sort(required)
			out["required"] = required
		}
	}
	if atomicTypes[t] {
		out["x-kubernetes-map-type"] = "atomic"
	}
	if kinds := s.kinds[t]; len(kinds) > 0 {
		out[gvkExtension] = gvks(kinds)
	}
	return n
}

// describeSelfEncoded fills in the schema of a type that encodes itself.
func (s *schemaSet) describeSelfEncoded(out jsonObject, self schemaTyped, zero any) {
	kinds := self.OpenAPISchemaType()
	format := ""
	if f, ok := zero.(schemaFormatted); ok {
		format = f.OpenAPISchemaFormat()
	}
	if o, ok := zero.(oneOfTyped); ok && s.v3 {
		var any []jsonObject
		for _, kind := range o.OpenAPIV3OneOfTypes() {
			any = append(any, jsonObject{"type": kind})
		}
		out["oneOf"] = any
	} else if len(kinds) > 0 {
		out["type"] = kinds[0]
	}
	if format != "" {
		out["format"] = format
	}
}

// fields adds the fields of a struct, including those of inlined structs.
func (s *schemaSet) fields(t reflect.Type, properties jsonObject, required *[]string) {
	var docs map[string]string
	if d, ok := reflect.Zero(t).Interface().(swaggerDocumented); ok {
		docs = d.SwaggerDoc()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || f.PkgPath != "" && !f.Anonymous {
			continue
		}
		if tag == "" {
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if f.Anonymous && inner.Kind() == reflect.Struct {
				s.fields(inner, properties, required)
			}
			continue
		}
		property := s.reference(f.Type)
		if ref, ok := property["$ref"]; ok && s.v3 {
			property = jsonObject{"allOf": []jsonObject{{"$ref": ref}}}
		}
		if text := docs[tag]; text != "" {
			property["description"] = text
		}
		if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
			property["x-kubernetes-patch-strategy"] = strategy
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			property["x-kubernetes-patch-merge-key"] = key
		}
		maps.Copy(property, mergeExtensions[t][tag])
		properties[tag] = property
		if isRequired(f.Type, options) {
			*required = append(*required, tag)
		}
	}
}

// isRequired reports whether a field is required. Lists and maps never are, because they are also null where their tag
// does not omit them.
func isRequired(t reflect.Type, options string) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return false
	}
	return !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero")
}

const gvkExtension = "x-kubernetes-group-version-kind"

func gvks(list []schema.GroupVersionKind) []jsonObject {
	var out []jsonObject
	for _, k := range list {
		out = append(out, gvk(k))
	}
	return out
}

func gvk(k schema.GroupVersionKind) jsonObject {
	return jsonObject{"group": k.Group, "version": k.Version, "kind": k.Kind}
}
