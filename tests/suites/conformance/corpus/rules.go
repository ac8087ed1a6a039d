package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	strictjson "sigs.k8s.io/json"
)

// wrongObject is an object that is wrong in one way, with the answer to it.
type wrongObject struct {
	Rule  string         `json:"rule"`
	Set   map[string]any `json:"set,omitempty"`   // values at paths of the sample; null deletes a value
	Twice string         `json:"twice,omitempty"` // the path of a field that occurs twice
	By    []string       `json:"by,omitempty"`    // ways to send the object; empty: all that the kind supports
	// Decoder is the error of the decoder: in a 400 to POST and PUT, in a 422 to a merge patch.
	Decoder string `json:"decoder,omitempty"`
	// Patch is the error of the decoder of a merge patch, if it differs from Decoder.
	Patch string `json:"patch,omitempty"`
	// Apply is the answer to server-side apply: a code and the end of the message.
	Apply string `json:"apply,omitempty"`
	// Refused is the answer to all ways of sending: a code and the end of the message.
	Refused string `json:"refused,omitempty"`
	// Causes are the causes of a 422 Invalid, for all ways of sending.
	Causes []wrongCause `json:"causes,omitempty"`
	// Warning is the warning that replaces the error if field validation only warns.
	Warning string `json:"warning,omitempty"`
}

type wrongCause struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"` // a part of the message
}

// wrongRule returns the objects of a kind that are wrong in one way. Each rule follows from one fact of the published
// schema.
type wrongRule struct {
	name string
	make func(p *upstreamCode, d *docComments, k *sampleKind) []wrongObject
}

// wrongRules are in the order of the data.
var wrongRules = []wrongRule{
	{"type", wrongTypes},
	{"range", outOfRange},
	{"unknown", unknownFields},
	{"twice", doubledFields},
	{"key", duplicateItems},
	{"metadata", wrongKindMetadata},
	{"required", missingFields},
	{"minimum", belowMinimum},
	{"enum", wrongEnums},
}

// wrongTypeValue returns a value that cannot be decoded as the field's type. It returns nil if there is none.
func wrongTypeValue(f *schemaField) any {
	switch {
	case f.valueType == reflect.TypeFor[resource.Quantity]():
		return "much"
	case f.valueType == reflect.TypeFor[intstr.IntOrString]():
		return true
	case f.valueType == reflect.TypeFor[metav1.Time]() || f.valueType == reflect.TypeFor[metav1.MicroTime]():
		return "yesterday"
	case f.valueType == reflect.TypeFor[metav1.Duration]():
		return "long"
	case isOpaque(f.valueType):
		return nil
	}
	switch f.valueType.Kind() {
	case reflect.String:
		return 7
	case reflect.Bool:
		return "yes"
	case reflect.Int32, reflect.Int64:
		return "seven"
	case reflect.Slice:
		if f.valueType.Elem().Kind() == reflect.Uint8 {
			return "%"
		}
		return map[string]any{"a": "b"}
	case reflect.Struct, reflect.Map:
		return []any{7}
	}
	return nil
}

// wrongTypes returns objects with a value of another JSON type than the field's. It takes one field of each type of the
// kind, and fields of the sample first.
func wrongTypes(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	seen := map[string]bool{}
	for _, present := range []bool{true, false} {
		for _, f := range k.fields {
			name := f.valueType.Kind().String()
			if isOpaque(f.valueType) || f.valueType.Kind() == reflect.Slice {
				name = f.valueType.String()
			}
			v := wrongTypeValue(f)
			if v == nil || seen[name] || (f.value != nil) != present || len(out) == 6 {
				continue
			}
			seen[name] = true
			out = append(out, p.undecodableObject(k, "type", f.path, v))
		}
	}
	return out
}

// outOfRange returns objects with a number that is too large for its type, and with a fraction for an integer type.
func outOfRange(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	for _, f := range k.fields {
		if f.valueType.Kind() == reflect.Int32 {
			return append(out, p.undecodableObject(k, "range", f.path, int64(1)<<31),
				p.undecodableObject(k, "range", f.path, 1.5))
		}
	}
	return out
}

// undecodableObject returns an object that the decoder of the kind's type refuses.
func (p *upstreamCode) undecodableObject(k *sampleKind, rule, path string, v any) wrongObject {
	o, err := withPath(k.withMetadata(), path, v)
	if err != nil {
		panic(err.Error())
	}
	w := wrongObject{Rule: rule, Set: map[string]any{path: v}, Decoder: p.decodeError(k, mustEncode(o))}
	if w.Decoder == "" {
		panic(fmt.Sprintf("%s: %s is taken with %v", k, path, v))
	}
	p.addApplyAnswer(&w, k, mustEncode(o))
	return w
}

// addApplyAnswer adds the answer to server-side apply of the body. If apply accepts the body, apply is removed from the
// ways of sending, because the schema does not define the answer.
func (p *upstreamCode) addApplyAnswer(w *wrongObject, k *sampleKind, body []byte) {
	if k.IsAnswerOnly {
		return
	}
	if code, message := p.applyError(k, body); code != 0 {
		w.Apply = fmt.Sprint(code, " ", message)
	} else {
		w.By = []string{"post", "put", "patch"}
	}
}

// unknownFields returns objects with a field that the schema does not have. Such a field is refused, or dropped with a
// warning. Field names are case-sensitive.
func unknownFields(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	paths := []string{"nobodyKnows"}
	if spec, _ := k.withMetadata()["spec"].(map[string]any); len(spec) > 0 {
		paths = append(paths, "spec.nobodyKnows")
	}
	deep := ""
	for _, f := range k.fields {
		if f.value != nil && strings.Count(f.path, ".") > strings.Count(deep, ".") {
			deep = f.path
		}
	}
	if i := strings.LastIndex(deep, "."); i > 0 && deep[:i] != "spec" {
		paths = append(paths, deep[:i]+".nobodyKnows")
	}
	for _, path := range paths {
		out = append(out, p.unknownField(k, path, 1))
	}
	for _, f := range k.fields {
		i := strings.LastIndex(f.path, ".") + 1
		if cased := f.path[:i] + strings.ToUpper(f.path[i:i+1]) + f.path[i+1:]; f.value == nil &&
			wrongTypeValue(f) != nil &&
			!f.isPointer {
			return append(out, p.unknownField(k, cased, zeroValue(f)))
		}
	}
	return out
}

func zeroValue(f *schemaField) any {
	switch f.valueType.Kind() {
	case reflect.String:
		return ""
	case reflect.Bool:
		return false
	case reflect.Int32, reflect.Int64:
		return 0
	case reflect.Slice:
		return []any{}
	}
	return map[string]any{}
}

func (p *upstreamCode) unknownField(k *sampleKind, path string, v any) wrongObject {
	w := p.undecodableObject(k, "unknown", path, v)
	_, w.Warning, _ = strings.Cut(w.Decoder, "strict decoding error: ")
	return w
}

// doubledFields returns an object in which a field occurs twice.
func doubledFields(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	deep := ""
	for _, f := range k.fields {
		if f.value != nil && (deep == "" || strings.Count(f.path, ".") <= 2) {
			deep = f.path
		}
	}
	if deep == "" {
		return nil
	}
	body := withDoubledField(k.withMetadata(), deep)
	w := wrongObject{Rule: "twice", Twice: deep, Decoder: p.decodeError(k, body)}
	_, w.Warning, _ = strings.Cut(w.Decoder, "strict decoding error: ")
	w.Patch = doubledPatchError(k, body)
	p.addApplyAnswer(&w, k, body)
	return []wrongObject{w}
}

// doubledPatchError returns the error for a merge patch in which a field occurs twice. The patch is decoded by itself.
func doubledPatchError(k *sampleKind, body []byte) string {
	strict, err := strictjson.UnmarshalStrict(body, &map[string]any{})
	if err != nil || len(strict) != 1 {
		panic(fmt.Sprintf("%s: a patch with a field twice: %v %v", k, strict, err))
	}
	return strict[0].Error()
}

// withDoubledField returns an object's JSON with the field at a path twice.
func withDoubledField(o map[string]any, path string) []byte {
	const mark = "twice-here"
	parts := strings.Split(path, ".")
	v := valueAt(o, path)
	marked, err := withPath(o, strings.Join(append(slices.Clone(parts[:len(parts)-1]), mark), "."), v)
	if err != nil {
		panic(err.Error())
	}
	return []byte(strings.Replace(string(mustEncode(marked)), `"`+mark+`"`, `"`+parts[len(parts)-1]+`"`, 1))
}
