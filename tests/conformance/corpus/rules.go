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

// wrong is an object that is wrong in one way, and what is answered to it.
type wrong struct {
	Rule  string         `json:"rule"`
	Set   map[string]any `json:"set,omitempty"`   // values at paths of the sample; null takes them away
	Twice string         `json:"twice,omitempty"` // a path whose field comes twice
	By    []string       `json:"by,omitempty"`    // ways in which it comes; empty: all that the kind has
	// Decoder is what the decoder says: in a 400 to POST and PUT, in a 422 to a merge patch.
	Decoder string `json:"decoder,omitempty"`
	// Patch is what the decoder of a merge patch says, where that is not the decoder of the object.
	Patch string `json:"patch,omitempty"`
	// Apply is answered to server-side apply: a code, and what the message ends with.
	Apply string `json:"apply,omitempty"`
	// Refused is answered whichever way it came: a code, and what the message ends with.
	Refused string `json:"refused,omitempty"`
	// Causes are of what is invalid, 422 whichever way it came.
	Causes []cause `json:"causes,omitempty"`
	// Warning is what is told instead where fields are to be warned of.
	Warning string `json:"warning,omitempty"`
}

type cause struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"` // what the message has
}

// rule makes what is wrong in one way of a kind. Each follows from one fact of the published schema.
type rule struct {
	name string
	make func(p *published, d *documents, k *kind) []wrong
}

// rules are in the order in which the data has them.
var rules = []rule{
	{"type", types},
	{"range", ranges},
	{"unknown", unknowns},
	{"twice", twices},
	{"key", keys},
	{"metadata", metas},
	{"required", requireds},
	{"minimum", minimums},
	{"enum", enums},
}

// mistyped are values that no value of a type is written as.
func mistyped(f *field) any {
	switch {
	case f.of == reflect.TypeFor[resource.Quantity]():
		return "much"
	case f.of == reflect.TypeFor[intstr.IntOrString]():
		return true
	case f.of == reflect.TypeFor[metav1.Time]() || f.of == reflect.TypeFor[metav1.MicroTime]():
		return "yesterday"
	case f.of == reflect.TypeFor[metav1.Duration]():
		return "long"
	case isOpaque(f.of):
		return nil
	}
	switch f.of.Kind() {
	case reflect.String:
		return 7
	case reflect.Bool:
		return "yes"
	case reflect.Int32, reflect.Int64:
		return "seven"
	case reflect.Slice:
		if f.of.Elem().Kind() == reflect.Uint8 {
			return "%"
		}
		return map[string]any{"a": "b"}
	case reflect.Struct, reflect.Map:
		return []any{7}
	}
	return nil
}

// types: a value of another JSON type is no value of the field's. One field of each type of the kind, of the sample
// first.
func types(p *published, _ *documents, k *kind) []wrong {
	var out []wrong
	seen := map[string]bool{}
	for _, present := range []bool{true, false} {
		for _, f := range k.fields {
			name := f.of.Kind().String()
			if isOpaque(f.of) || f.of.Kind() == reflect.Slice {
				name = f.of.String()
			}
			v := mistyped(f)
			if v == nil || seen[name] || (f.value != nil) != present || len(out) == 6 {
				continue
			}
			seen[name] = true
			out = append(out, p.undecodable(k, "type", f.path, v))
		}
	}
	return out
}

// ranges: a number is no number of a type that has no room for it, nor one with a fraction of one that has none.
func ranges(p *published, _ *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		if f.of.Kind() == reflect.Int32 {
			return append(out, p.undecodable(k, "range", f.path, int64(1)<<31), p.undecodable(k, "range", f.path, 1.5))
		}
	}
	return out
}

// undecodable is an object that has no value of the kind's type.
func (p *published) undecodable(k *kind, rule, path string, v any) wrong {
	o, err := put(k.whole(), path, v)
	if err != nil {
		panic(err.Error())
	}
	w := wrong{Rule: rule, Set: map[string]any{path: v}, Decoder: p.decoded(k, encode(o))}
	if w.Decoder == "" {
		panic(fmt.Sprintf("%s: %s is taken with %v", k, path, v))
	}
	p.byApply(&w, k, encode(o))
	return w
}

// byApply says what is answered to an applied body, or that it does not come that way: what is taken in another meaning
// is not for the schema to say.
func (p *published) byApply(w *wrong, k *kind, body []byte) {
	if k.Answered {
		return
	}
	if code, message := p.applied(k, body); code != 0 {
		w.Apply = fmt.Sprint(code, " ", message)
	} else {
		w.By = []string{"post", "put", "patch"}
	}
}

// unknowns: a field that the schema does not have is refused, or dropped with a warning. The names of fields are told
// apart by their cases.
func unknowns(p *published, _ *documents, k *kind) []wrong {
	var out []wrong
	paths := []string{"nobodyKnows"}
	if spec, _ := k.whole()["spec"].(map[string]any); len(spec) > 0 {
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
		out = append(out, p.unknown(k, path, 1))
	}
	for _, f := range k.fields {
		i := strings.LastIndex(f.path, ".") + 1
		if cased := f.path[:i] + strings.ToUpper(f.path[i:i+1]) + f.path[i+1:]; f.value == nil && mistyped(f) != nil &&
			!f.pointer {
			return append(out, p.unknown(k, cased, zero(f)))
		}
	}
	return out
}

func zero(f *field) any {
	switch f.of.Kind() {
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

func (p *published) unknown(k *kind, path string, v any) wrong {
	w := p.undecodable(k, "unknown", path, v)
	_, w.Warning, _ = strings.Cut(w.Decoder, "strict decoding error: ")
	return w
}

// twices: a field comes once.
func twices(p *published, _ *documents, k *kind) []wrong {
	deep := ""
	for _, f := range k.fields {
		if f.value != nil && (deep == "" || strings.Count(f.path, ".") <= 2) {
			deep = f.path
		}
	}
	if deep == "" {
		return nil
	}
	body := doubled(k.whole(), deep)
	w := wrong{Rule: "twice", Twice: deep, Decoder: p.decoded(k, body)}
	_, w.Warning, _ = strings.Cut(w.Decoder, "strict decoding error: ")
	w.Patch = patchedTwice(k, body)
	p.byApply(&w, k, body)
	return []wrong{w}
}

// patchedTwice is what is said of a merge patch in which the field comes twice: a patch is looked at by itself.
func patchedTwice(k *kind, body []byte) string {
	strict, err := strictjson.UnmarshalStrict(body, &map[string]any{})
	if err != nil || len(strict) != 1 {
		panic(fmt.Sprintf("%s: a patch with a field twice: %v %v", k, strict, err))
	}
	return strict[0].Error()
}

// doubled is an object's JSON with the field at a path twice.
func doubled(o map[string]any, path string) []byte {
	const mark = "twice-here"
	parts := strings.Split(path, ".")
	v := at(o, path)
	marked, err := put(o, strings.Join(append(slices.Clone(parts[:len(parts)-1]), mark), "."), v)
	if err != nil {
		panic(err.Error())
	}
	return []byte(strings.Replace(string(encode(marked)), `"`+mark+`"`, `"`+parts[len(parts)-1]+`"`, 1))
}
