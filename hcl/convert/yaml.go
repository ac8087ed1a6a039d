package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^(?:yaml: |error converting YAML to JSON: yaml: )+line (\d+): `)

// ReadYAML returns the objects in a file of YAML or JSON documents. Lists are replaced by their items.
func ReadYAML(file string, text []byte) (objects []Object, problems []Problem) {
	for _, d := range splitDocuments(string(text)) {
		content, err := decodeYAML([]byte(d.text))
		if err != nil {
			at, reason := d.line, err.Error()
			if m := yamlLine.FindStringSubmatch(reason); m != nil {
				n, _ := strconv.Atoi(m[1]) // digits, by the pattern
				at, reason = d.first+n-1, reason[len(m[0]):]
			}
			if strings.Contains(d.text, "{{") {
				reason += "; a template of a chart is converted from the output of helm template"
			}
			problems = append(problems, Problem{File: file, Line: at, Subject: "document",
				Message: strings.ReplaceAll(reason, "\n", " ")})
			continue
		}
		if content == nil {
			continue
		}
		fields, ok := content.(map[string]any)
		if !ok {
			problems = append(problems, Problem{File: file, Line: d.line, Subject: "document",
				Message: "it is not an object"})
			continue
		}
		list, more := splitList(Object{Content: fields, File: file, Line: d.line}, 0)
		objects, problems = append(objects, list...), append(problems, more...)
	}
	return objects, problems
}

// document is a document of a file. first is the number of its first line, line that of its first line with content.
type document struct {
	text        string
	first, line int
}

// splitDocuments splits a file at the lines that begin a document. Documents without content are left out.
func splitDocuments(text string) (list []document) {
	var lines []string
	first := 1
	flush := func(next int) {
		for i, line := range lines {
			if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' && line[0] != '%' {
				list = append(list, document{strings.Join(lines, ""), first, first + i})
				break
			}
		}
		lines, first = nil, next
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		trimmed := strings.TrimRight(line, "\r\n")
		switch rest, isStart := strings.CutPrefix(trimmed, "---"); {
		case isStart && (rest == "" || rest[0] == ' ' || rest[0] == '\t'):
			flush(number)
			lines = append(lines, rest+"\n")
		case trimmed == "...":
			flush(number + 1)
		default:
			lines = append(lines, line)
		}
	}
	flush(number + 1)
	return list
}

// decodeYAML returns the value of a document, without loss of digits.
func decodeYAML(text []byte) (any, error) {
	plain, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(plain))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return plainNumbers(v, 0)
}

// plainNumbers converts numbers to int64 where they are integers of that range, and to float64 otherwise.
func plainNumbers(v any, depth int) (_ any, err error) {
	if depth > maxDepth+8 { // lists around an object have levels of their own
		return nil, fmt.Errorf("it has more than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
		return f, err
	case map[string]any:
		for k, e := range v {
			if v[k], err = plainNumbers(e, depth+1); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range v {
			if v[i], err = plainNumbers(e, depth+1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// splitList returns an object, or the items of a List or of a typed list such as ConfigMapList.
func splitList(o Object, depth int) (list []Object, problems []Problem) {
	kind, _ := o.Content["kind"].(string)
	of, isList := strings.CutSuffix(kind, "List")
	items, hasItems := o.Content["items"]
	if !isList || !hasItems || o.metadata("name") != "" {
		return []Object{o}, nil
	}
	elements, ok := items.([]any)
	if !ok && items != nil || depth > 4 {
		return nil, []Problem{o.problem("items of a %s must be a list of objects", kind)}
	}
	for i, e := range elements {
		item, ok := e.(map[string]any)
		if !ok {
			problems = append(problems, o.problem("element %d of a %s is not an object", i+1, kind))
			continue
		}
		if of != "" && item["apiVersion"] == nil {
			item["apiVersion"] = o.Content["apiVersion"]
		}
		if of != "" && item["kind"] == nil {
			item["kind"] = of
		}
		inner, more := splitList(Object{Content: item, File: o.File, Line: o.Line}, depth+1)
		list, problems = append(list, inner...), append(problems, more...)
	}
	return list, problems
}

// YAML returns objects as YAML documents.
func YAML(objects []map[string]any) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write object %d: %w", i+1, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}
