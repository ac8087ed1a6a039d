package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// keys returns objects with lists in which an item occurs twice. An item of a list of type map occurs once by its keys,
// and an item of a set occurs once. Apply refuses duplicates, because field ownership could not be recorded for them.
// Whether a POST with duplicates is refused depends on the documentation of the kind.
func keys(p *published, _ *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		list, ok := f.value.([]any)
		if kind := f.markers["listType"]; !ok || len(list) == 0 || kind != "map" && kind != "set" {
			continue
		}
		v := append(slices.Clone(list), list[0])
		o, err := put(k.whole(), f.path, v)
		if err != nil {
			panic(err.Error())
		}
		code, message := p.applied(k, encode(o))
		if code == 0 {
			panic(fmt.Sprintf("%s: %s is applied with an item twice", k, f.path))
		}
		out = append(
			out,
			wrong{
				Rule:  "key",
				Set:   map[string]any{f.path: unfilled(k, f.path, v)},
				By:    []string{"apply"},
				Apply: fmt.Sprint(code, " ", message),
			},
		)
	}
	return out
}

// unfilled returns a list with the sample's first item twice, with the sample's placeholders for values that only a
// running test knows.
func unfilled(k *kind, path string, v any) any {
	if list, ok := at(k.Object, path).([]any); ok {
		return append(slices.Clone(list), list[0])
	}
	return v
}

// requireds returns objects without a required field. The error names its path. A missing number or object has a zero
// value, so the schema requires nothing of it, unless it has a rule for it.
func requireds(_ *published, _ *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		switch f.of.Kind() {
		case reflect.String, reflect.Slice, reflect.Map:
		case reflect.Struct:
			if !f.pointer {
				continue
			}
		default:
			if !f.markers.has("k8s:required") { // this marker is enforced, and is not only documentation
				continue
			}
		}
		if !f.required() || f.value == nil {
			continue
		}
		w := wrong{
			Rule:   "required",
			Set:    map[string]any{f.path: nil},
			By:     valued(k, f.path),
			Causes: []cause{{Field: f.named(), Reason: "FieldValueRequired", Message: "Required value"}},
		}
		out = append(out, documented(k, f.path, w))
	}
	return out
}

// minimums returns objects with a number less than its minimum. The error names the minimum.
func minimums(_ *published, _ *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		least, ok := f.markers["k8s:minimum"]
		if !ok || f.of.Kind() != reflect.Int32 && f.of.Kind() != reflect.Int64 {
			continue
		}
		w := wrong{Rule: "minimum", Set: map[string]any{f.path: -1}, By: valued(k, f.path),
			Causes: []cause{
				{
					Field:   f.named(),
					Reason:  "FieldValueInvalid",
					Message: "Invalid value: -1: must be greater than or equal to " + least,
				},
			}}
		out = append(out, documented(k, f.path, w))
	}
	return out
}

// enums returns objects with a value that an enumerated type does not have. The error lists the supported values.
func enums(_ *published, d *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		values := d.enum(f.of)
		if len(values) == 0 || strings.Contains(f.path, "template.spec.") && !slices.Contains(templates, k.Kind) {
			continue // many kinds have the same pod spec, so only some of them are tested
		}
		var quoted []string
		for _, v := range values {
			if !strings.HasPrefix(v, "?") {
				quoted = append(quoted, fmt.Sprintf("%q", v))
			}
		}
		w := wrong{Rule: "enum", Set: map[string]any{f.path: "Wild"}, By: valued(k, f.path),
			Causes: []cause{
				{
					Field:   f.named(),
					Reason:  "FieldValueNotSupported",
					Message: `Unsupported value: "Wild": supported values: ` + strings.Join(quoted, ", "),
				},
			}}
		out = append(out, documented(k, f.path, w))
	}
	return out
}

// templates are the kinds whose pod templates are tested for enums.
var templates = []string{"Deployment", "Job", "CronJob"}

// rechecked are the kinds for which upstream validates an update like a new object. Only the selector must not change.
var rechecked = []string{
	"Deployment", "CronJob", "PodTemplate", "PodDisruptionBudget", "HorizontalPodAutoscaler", "LimitRange",
	"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterRole", "Role", "FlowSchema",
	"PriorityLevelConfiguration",
}

// valued returns the ways of sending for which values are validated like those of a new object. In an update, a changed
// value may instead be refused because it is immutable.
func valued(k *kind, path string) []string {
	switch {
	case k.Answered || !k.serves("patch"):
		return []string{"post"}
	case slices.Contains(rechecked, k.Kind) && path != "spec.selector": // a selector is immutable
		return nil
	}
	return []string{"post", "apply"}
}

// at returns the value at a path, and nil if there is none.
func at(o map[string]any, path string) any {
	var v any = o
	for _, part := range strings.Split(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			i := 0
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}
