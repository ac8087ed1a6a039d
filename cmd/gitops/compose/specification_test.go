package compose

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"
	"go.yaml.in/yaml/v4"

	"clusterctl/hcl/convert"
)

// node is a part of the JSON schema of the Compose specification.
type node = map[string]any

// specification is the JSON schema of the Compose specification.
type specification struct{ root node }

func readSpecification(t *testing.T) specification {
	t.Helper()
	var s specification
	if err := json.Unmarshal([]byte(schema.Schema), &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

// expand returns the parts, and those that they refer to.
func (s specification) expand(parts []node) (list []node) {
	for _, n := range parts {
		list = append(list, n)
		if name, ok := n["$ref"].(string); ok {
			definitions := s.root["$defs"].(node)
			list = append(list, s.expand([]node{definitions[filepath.Base(name)].(node)})...)
		}
		for _, key := range []string{"oneOf", "anyOf", "allOf"} {
			for _, e := range asList(n[key]) {
				list = append(list, s.expand([]node{e.(node)})...)
			}
		}
	}
	return list
}

// below returns the parts that describe an attribute, and the attribute's name in patterns.
func (s specification) below(parts []node, name string) (list []node, pattern string) {
	for _, n := range s.expand(parts) {
		if p, ok := asMap(n["properties"])[name].(node); ok {
			list, pattern = append(list, p), "."+name
		}
	}
	if pattern != "" {
		return list, pattern
	}
	for _, n := range s.expand(parts) {
		for key, p := range asMap(n["patternProperties"]) {
			if key == "^x-" && strings.HasPrefix(name, "x-") {
				return nil, ".x-*"
			} else if key != "^x-" {
				list, pattern = append(list, p.(node)), ".*"
			}
		}
	}
	return list, pattern
}

func (s specification) items(parts []node) (list []node) {
	for _, n := range s.expand(parts) {
		if e, ok := n["items"].(node); ok {
			list = append(list, e)
		}
	}
	return list
}

// patterns adds the patterns of all attributes to a set.
func (s specification) patterns(parts []node, prefix string, set map[string]bool) {
	for _, n := range s.expand(parts) {
		for name, e := range asMap(n["properties"]) {
			set[prefix+"."+name] = true
			s.patterns([]node{e.(node)}, prefix+"."+name, set)
		}
		for key, e := range asMap(n["patternProperties"]) {
			if key != "^x-" {
				s.patterns([]node{e.(node)}, prefix+".*", set)
			} else if !strings.HasSuffix(prefix, ".gpus") { // a list, which has no attributes
				set[prefix+".x-*"] = true
			}
		}
		if e, ok := n["items"].(node); ok {
			s.patterns([]node{e}, prefix+"[]", set)
		}
	}
}

// visit calls do for each attribute in a value.
func (s specification) visit(parts []node, v any, path []string, pattern string,
	do func(path []string, pattern string)) {
	for name, e := range entries(asMap(v)) {
		list, p := s.below(parts, name)
		if p == "" {
			continue
		}
		at := append(slices.Clone(path), name)
		if p != ".*" {
			do(at, pattern+p)
		}
		s.visit(list, e, at, pattern+p, do)
	}
	if list, ok := v.([]any); ok {
		for i, e := range list {
			s.visit(s.items(parts), e, append(slices.Clone(path), index(i)), pattern+"[]", do)
		}
	}
}

// without returns a deep copy of a value that lacks an attribute.
func without(v any, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			switch {
			case len(path) == 0 || path[0] != name:
				out[name] = without(e, nil)
			case len(path) > 1:
				out[name] = without(e, path[1:])
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			if out[i] = without(e, nil); len(path) > 0 && path[0] == index(i) {
				out[i] = without(e, path[1:])
			}
		}
		return out
	}
	return v
}

func TestEveryAttributeOfTheSpecificationOccursInTheExamples(t *testing.T) {
	s := readSpecification(t)
	missing := map[string]bool{}
	s.patterns([]node{s.root}, "", missing)
	if len(missing) < 700 {
		t.Fatalf("the specification has %d attributes", len(missing))
	}
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		s.visit([]node{s.root}, v, nil, "", func(_ []string, pattern string) { delete(missing, pattern) })
	}
	for _, pattern := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s does not occur", pattern)
	}
}

// isResolved reports whether an attribute is one that the loader replaces by what it refers to.
func isResolved(pattern string) bool {
	return strings.HasPrefix(pattern, ".include") || strings.HasPrefix(pattern, ".services.*.extends") ||
		strings.Contains(pattern, ".external.") || pattern == ".configs.*.environment" || pattern == ".version"
}

func TestEveryAttributeChangesTheObjectsOrIsListed(t *testing.T) {
	s := readSpecification(t)
	missing := map[string]bool{}
	s.patterns([]node{s.root}, "", missing)
	for _, example := range loadExamples(t) {
		want, subjects := encodeConverted(t, example.convert())
		whole := example.model
		s.visit([]node{s.root}, whole, nil, "", func(path []string, pattern string) {
			if !missing[pattern] {
				return
			}
			if isListed(subjects, path) {
				delete(missing, pattern)
				return
			}
			example.model = without(whole, path).(map[string]any)
			if got, _ := encodeConverted(t, example.convert()); got != want {
				delete(missing, pattern)
			}
		})
		example.model = whole
	}
	for _, pattern := range slices.Sorted(maps.Keys(missing)) {
		if !isResolved(pattern) {
			t.Errorf("%s changes nothing, and is not listed", pattern)
		}
	}
}

func encodeConverted(t *testing.T, c convert.Converted) (text string, subjects []string) {
	t.Helper()
	convert.SortProblems(c.Problems)
	for _, p := range c.Problems {
		subjects = append(subjects, p.Subject)
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), subjects
}

// isListed reports whether a list has an attribute, or one around it.
func isListed(subjects []string, path []string) bool {
	for n := len(path); n > 0; n-- {
		if slices.Contains(subjects, subject(path[:n])) {
			return true
		}
	}
	return false
}
