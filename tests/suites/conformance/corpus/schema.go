package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// schemaField is a field that a kind's objects may have, inside an object that its sample has.
type schemaField struct {
	path       string // as in spec.containers.0.image
	parentType reflect.Type
	valueType  reflect.Type // of the value, without a pointer
	json       string
	isPointer  bool
	markers    docMarkers
	value      any // the sample's value; nil: none
	isInList   bool
}

// causePath returns the field's path as causes contain it: spec.containers[0].image.
func (f *schemaField) causePath() string { return withIndexes(f.path) }

func withIndexes(path string) string {
	var out strings.Builder
	for i, part := range strings.Split(path, ".") {
		if _, err := strconv.Atoi(part); err == nil {
			out.WriteString("[" + part + "]")
			continue
		}
		if i > 0 {
			out.WriteString(".")
		}
		out.WriteString(part)
	}
	return out.String()
}

// isRequired reports whether the published schema lists the field as required.
func (f *schemaField) isRequired() bool {
	if f.markers.hasMarker("required") || f.markers.hasMarker("k8s:required") {
		return true
	}
	return !f.markers.hasMarker("optional") && !f.markers.hasMarker("k8s:optional") && !strings.Contains(f.json, "omit")
}

// opaqueTypes are types that define their own JSON encoding.
var opaqueTypes = []reflect.Type{
	reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](),
	reflect.TypeFor[metav1.MicroTime](),
	reflect.TypeFor[metav1.Duration](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1](),
}

func isOpaque(t reflect.Type) bool {
	return slices.Contains(opaqueTypes, t) || t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "JSON")
}

// fieldsOf returns the fields of a kind without its metadata and status: those of the sample's values and their
// neighbours, with the shallow ones first.
func (d *docComments) fieldsOf(kind reflect.Type, sample map[string]any) []*schemaField {
	var all []*schemaField
	d.walk(kind, sample, "", false, &all)
	slices.SortStableFunc(all, func(a, b *schemaField) int {
		return cmp.Compare(strings.Count(a.path, "."), strings.Count(b.path, "."))
	})
	return all
}

func (d *docComments) walk(t reflect.Type, value map[string]any, path string, inLists bool, all *[]*schemaField) {
	for i := range t.NumField() {
		in := t.Field(i)
		name, options, _ := strings.Cut(in.Tag.Get("json"), ",")
		if in.Anonymous && name == "" {
			if in.Type != reflect.TypeFor[metav1.TypeMeta]() {
				d.walk(in.Type, value, path, inLists, all)
			}
			continue
		}
		if name == "" || name == "-" || in.Type == reflect.TypeFor[metav1.ObjectMeta]() ||
			path == "" && name == "status" {
			continue
		}
		f := &schemaField{
			path:       strings.TrimPrefix(path+"."+name, "."),
			parentType: t,
			valueType:  in.Type,
			json:       options,
			markers:    d.field(t, in.Name),
			value:      value[name],
			isInList:   inLists,
		}
		if f.valueType.Kind() == reflect.Pointer {
			f.valueType, f.isPointer = f.valueType.Elem(), true
		}
		*all = append(*all, f)
		if f.value == nil || isOpaque(f.valueType) {
			continue
		}
		switch f.valueType.Kind() {
		case reflect.Struct:
			if v, ok := f.value.(map[string]any); ok {
				d.walk(f.valueType, v, f.path, inLists, all)
			}
		case reflect.Slice:
			list, _ := f.value.([]any)
			if item := f.valueType.Elem(); len(list) > 0 && item.Kind() == reflect.Struct && !isOpaque(item) {
				if v, ok := list[0].(map[string]any); ok {
					d.walk(item, v, f.path+".0", true, all)
				}
			}
		}
	}
}

// withPath returns a copy of an object with a value at a path. If the value is nil, the path is deleted.
func withPath(o map[string]any, path string, value any) (map[string]any, error) {
	out := map[string]any{}
	if err := json.Unmarshal(mustEncode(o), &out); err != nil {
		return nil, err
	}
	parts := strings.Split(path, ".")
	var in any = out
	for i, part := range parts {
		last := i == len(parts)-1
		switch at := in.(type) {
		case map[string]any:
			if last && value == nil {
				delete(at, part)
			} else if last {
				at[part] = value
			} else {
				if at[part] == nil {
					at[part] = map[string]any{}
				}
				in = at[part]
			}
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(at) {
				return nil, fmt.Errorf("%s: a list has no %s", path, part)
			}
			if last {
				at[n] = value
			} else {
				in = at[n]
			}
		default:
			return nil, fmt.Errorf("%s: %s is in a %T", path, part, in)
		}
	}
	return out, nil
}
