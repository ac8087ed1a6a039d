// Package convert converts between Kubernetes objects and the text of this project's configuration
// language. It reads no files and runs no programs.
package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Bounds of an input.
const (
	maxDepth   = 64      // levels of nested maps and lists in one object
	maxObjects = 100_000 // objects of one conversion
)

// Object is a Kubernetes object and where it was declared.
type Object struct {
	Content map[string]any // with the types of encoding/json, and int64 for integers
	File    string
	Line    int
}

// Problem is a part of the input that has no counterpart in the output.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Subject string `json:"subject"` // the object, or the attribute of a Compose file
	Message string `json:"message"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Subject, p.Message)
}

// SortProblems sorts problems by file, line and subject.
func SortProblems(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Subject, b.Subject))
	})
}

// problem returns a problem of an object.
func (o Object) problem(format string, args ...any) Problem {
	return Problem{File: o.File, Line: o.Line, Subject: o.title(), Message: fmt.Sprintf(format, args...)}
}

// title returns the kind, namespace and name of an object.
func (o Object) title() string {
	kind, _ := o.Content["kind"].(string)
	name, namespace := o.metadata("name"), o.metadata("namespace")
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// metadata returns a text in the object's metadata.
func (o Object) metadata(field string) string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	text, _ := metadata[field].(string)
	return text
}

// Converted is what another program converts for clusterctl convert.
type Converted struct {
	Objects  []Object  `json:"objects"`
	Problems []Problem `json:"problems"`
}

// ReadConverted decodes the JSON of a Converted without loss of digits.
func ReadConverted(text []byte) (c Converted, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("read the converted objects: %w", err)
	}
	for _, o := range c.Objects {
		for field, v := range o.Content {
			if o.Content[field], err = plainNumbers(v, 0); err != nil {
				return c, fmt.Errorf("read the converted objects: %w", err)
			}
		}
	}
	return c, nil
}
