package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// keys: items of a list that are told apart by keys have each of them once, and those of a set are each once. An apply
// that has them twice cannot be said to own any; that a whole object with them is refused too says each kind's
// documentation.
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

// unfilled is a list that is twice what the sample has, with what only a running test knows as the sample names it.
func unfilled(k *kind, path string, v any) any {
	if list, ok := at(k.Object, path).([]any); ok {
		return append(slices.Clone(list), list[0])
	}
	return v
}

// requireds: a field that the schema requires and the object lacks is asked for by its path. Numbers and objects are
// values also when they are not there: what is said of those is not the schema's, unless it has a rule for it.
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
			if !f.markers.has("k8s:required") { // a rule that is carried out, and not only published
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

// minimums: a number that is less than its least is invalid, and the least is told.
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

// enums: a value that is none of a type's few is not supported, and those that are supported are told.
func enums(_ *published, d *documents, k *kind) []wrong {
	var out []wrong
	for _, f := range k.fields {
		values := d.enum(f.of)
		if len(values) == 0 || strings.Contains(f.path, "template.spec.") && !slices.Contains(templates, k.Kind) {
			continue // the same pod spec is in many kinds: one of them speaks for it
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

// templates are the kinds whose pod templates are looked into for enums.
var templates = []string{"Deployment", "Job", "CronJob"}

// rechecked are the kinds of which upstream's validation of an update is that of a new object, where nothing but
// the selector must stay the same.
var rechecked = []string{
	"Deployment", "CronJob", "PodTemplate", "PodDisruptionBudget", "HorizontalPodAutoscaler", "LimitRange",
	"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterRole", "Role", "FlowSchema",
	"PriorityLevelConfiguration",
}

// valued are the ways in which values are looked at as those of a new object: what is there already may be immutable,
// and is refused for that.
func valued(k *kind, path string) []string {
	switch {
	case k.Answered || !k.serves("patch"):
		return []string{"post"}
	case slices.Contains(rechecked, k.Kind) && path != "spec.selector": // a selector stays as it is
		return nil
	}
	return []string{"post", "apply"}
}

// at returns what is at a path; nil where there is nothing.
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
