package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ExternalVersion is a group version that another server describes.
type ExternalVersion struct {
	Path string // for example apis/metrics.k8s.io/v1beta1
	V2   []byte // that server's version 2 document; nil if it has none
	V3   string // URL of its version 3 document; empty if it has none
}

func (e ExternalVersion) equal(other ExternalVersion) bool {
	return e.Path == other.Path && e.V3 == other.V3 && bytes.Equal(e.V2, other.V2)
}

const definitionRef = "#/definitions/"

// mergeExternal adds the parts of another server's version 2 document that concern the group version to paths and
// definitions. Definitions with the name of a different one are renamed.
func mergeExternal(paths, definitions jsonObject, e ExternalVersion) error {
	var other struct {
		Paths       map[string]any `json:"paths"`
		Definitions map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(e.V2, &other); err != nil {
		return fmt.Errorf("read the OpenAPI document of %s: %w", e.Path, err)
	}
	used := map[string]bool{}
	for path := range other.Paths {
		if path != "/"+e.Path && !strings.HasPrefix(path, "/"+e.Path+"/") {
			delete(other.Paths, path)
			continue
		}
		markUsed(other.Paths[path], other.Definitions, used)
	}
	names := newNames(used, other.Definitions, definitions)
	for _, path := range slices.Sorted(maps.Keys(other.Paths)) {
		if _, ok := paths[path]; !ok {
			paths[path] = replaceReferences(other.Paths[path], names)
		}
	}
	for name, as := range names {
		if _, ok := definitions[as]; !ok {
			definitions[as] = replaceReferences(other.Definitions[name], names)
		}
	}
	return nil
}

// eachReference calls f with the name of each definition that v refers to.
func eachReference(v any, f func(name string)) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if ref, ok := inner.(string); ok && key == "$ref" {
				if name, ok := strings.CutPrefix(ref, definitionRef); ok {
					f(name)
				}
				continue
			}
			eachReference(inner, f)
		}
	case []any:
		for _, inner := range v {
			eachReference(inner, f)
		}
	}
}

// markUsed marks the definitions that v refers to, directly or indirectly.
func markUsed(v any, definitions map[string]any, used map[string]bool) {
	eachReference(v, func(name string) {
		if definition, ok := definitions[name]; ok && !used[name] {
			used[name] = true
			markUsed(definition, definitions, used)
		}
	})
}

// newNames returns the new name of each used definition. It is the old name, unless that exists with another content,
// or refers to a definition that does.
func newNames(used map[string]bool, theirs map[string]any, ours jsonObject) map[string]string {
	differ := map[string]bool{}
	for name := range used {
		if mine, ok := ours[name]; ok && !reflect.DeepEqual(decodedForm(mine), theirs[name]) {
			differ[name] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for name := range used {
			if _, ok := ours[name]; !ok || differ[name] {
				continue
			}
			eachReference(theirs[name], func(to string) { differ[name] = differ[name] || differ[to] })
			grown = grown || differ[name]
		}
	}
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		names[name] = name
		for n := 2; differ[name]; n++ {
			as := fmt.Sprintf("%s_v%d", name, n)
			if _, taken := ours[as]; !taken {
				names[name] = as
				break
			}
		}
	}
	return names
}

// decodedForm returns a schema in the form that decoding JSON produces.
func decodedForm(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

// replaceReferences returns v with its references replaced by the new names.
func replaceReferences(v any, names map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			ref, isText := inner.(string)
			name, isRef := strings.CutPrefix(ref, definitionRef)
			if as, ok := names[name]; key == "$ref" && isText && isRef && ok {
				out[key] = definitionRef + as
				continue
			}
			out[key] = replaceReferences(inner, names)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = replaceReferences(inner, names)
		}
		return out
	}
	return v
}
