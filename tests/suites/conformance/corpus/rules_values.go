package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// duplicateItems returns objects with lists in which an item occurs twice. An item of a list of type map occurs once by
// its keys, and an item of a set occurs once. Apply refuses duplicates, because field ownership could not be recorded
// for them. Whether a POST with duplicates is refused depends on the documentation of the kind.
func duplicateItems(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	for _, f := range k.fields {
		list, ok := f.value.([]any)
		if kind := f.markers["listType"]; !ok || len(list) == 0 || kind != "map" && kind != "set" {
			continue
		}
		v := append(slices.Clone(list), list[0])
		o, err := withPath(k.withMetadata(), f.path, v)
		if err != nil {
			panic(err.Error())
		}
		code, message := p.applyError(k, mustEncode(o))
		if code == 0 {
			panic(fmt.Sprintf("%s: %s is applied with an item twice", k, f.path))
		}
		out = append(
			out,
			wrongObject{
				Rule:  "key",
				Set:   map[string]any{f.path: doubledItem(k, f.path, v)},
				By:    []string{"apply"},
				Apply: fmt.Sprint(code, " ", message),
			},
		)
	}
	return out
}

// doubledItem returns a list with the sample's first item twice, with the sample's placeholders for values that only a
// running test knows.
func doubledItem(k *sampleKind, path string, v any) any {
	if list, ok := valueAt(k.Object, path).([]any); ok {
		return append(slices.Clone(list), list[0])
	}
	return v
}

// missingFields returns objects without a required field. The error names its path. A missing number or object has a
// zero value, so the schema requires nothing of it, unless it has a rule for it.
func missingFields(_ *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	for _, f := range k.fields {
		switch f.valueType.Kind() {
		case reflect.String, reflect.Slice, reflect.Map:
		case reflect.Struct:
			if !f.isPointer {
				continue
			}
		default:
			if !f.markers.hasMarker("k8s:required") { // this marker is enforced, and is not only documentation
				continue
			}
		}
		if !f.isRequired() || f.value == nil {
			continue
		}
		w := wrongObject{
			Rule:   "required",
			Set:    map[string]any{f.path: nil},
			By:     validatedWays(k, f.path),
			Causes: []wrongCause{{Field: f.causePath(), Reason: "FieldValueRequired", Message: "Required value"}},
		}
		out = append(out, applyExceptions(k, f.path, w))
	}
	return out
}

// belowMinimum returns objects with a number less than its minimum. The error names the minimum.
func belowMinimum(_ *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	for _, f := range k.fields {
		least, ok := f.markers["k8s:minimum"]
		if !ok || f.valueType.Kind() != reflect.Int32 && f.valueType.Kind() != reflect.Int64 {
			continue
		}
		w := wrongObject{Rule: "minimum", Set: map[string]any{f.path: -1}, By: validatedWays(k, f.path),
			Causes: []wrongCause{
				{
					Field:   f.causePath(),
					Reason:  "FieldValueInvalid",
					Message: "Invalid value: -1: must be greater than or equal to " + least,
				},
			}}
		out = append(out, applyExceptions(k, f.path, w))
	}
	return out
}

// wrongEnums returns objects with a value that an enumerated type does not have. The error lists the supported values.
func wrongEnums(_ *upstreamCode, d *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	for _, f := range k.fields {
		values := d.enum(f.valueType)
		if len(values) == 0 || strings.Contains(f.path, "template.spec.") && !slices.Contains(templateKinds, k.Kind) {
			continue // many kinds have the same pod spec, so only some of them are tested
		}
		var quoted []string
		for _, v := range values {
			if !strings.HasPrefix(v, "?") {
				quoted = append(quoted, fmt.Sprintf("%q", v))
			}
		}
		w := wrongObject{Rule: "enum", Set: map[string]any{f.path: "Wild"}, By: validatedWays(k, f.path),
			Causes: []wrongCause{
				{
					Field:   f.causePath(),
					Reason:  "FieldValueNotSupported",
					Message: `Unsupported value: "Wild": supported values: ` + strings.Join(quoted, ", "),
				},
			}}
		out = append(out, applyExceptions(k, f.path, w))
	}
	return out
}

// templateKinds are the kinds whose pod templates are tested for enums.
var templateKinds = []string{"Deployment", "Job", "CronJob"}

// revalidatedKinds are the kinds for which upstream validates an update like a new object. Only the selector must not
// change.
var revalidatedKinds = []string{
	"Deployment", "CronJob", "PodTemplate", "PodDisruptionBudget", "HorizontalPodAutoscaler", "LimitRange",
	"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterRole", "Role", "FlowSchema",
	"PriorityLevelConfiguration",
}

// validatedWays returns the ways of sending for which values are validated like those of a new object. In an update, a
// changed value may instead be refused because it is immutable.
func validatedWays(k *sampleKind, path string) []string {
	switch {
	case k.IsAnswerOnly || !k.hasVerb("patch"):
		return []string{"post"}
	case slices.Contains(revalidatedKinds, k.Kind) && path != "spec.selector": // a selector is immutable
		return nil
	}
	return []string{"post", "apply"}
}

// valueAt returns the value at a path, and nil if there is none.
func valueAt(o map[string]any, path string) any {
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
