package custom

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// printedColumns returns the columns after the name that a version declares, and a function that makes their cells.
// Both are nil if it declares none; the table then shows the age.
func printedColumns(
	list []apiextensionsv1.CustomResourceColumnDefinition,
) ([]metav1.TableColumnDefinition, func(runtime.Object) []any) {
	if len(list) == 0 {
		return nil, nil
	}
	var columns []metav1.TableColumnDefinition
	var cells []func(map[string]any) any
	for _, c := range list {
		description := c.Description
		if description == "" {
			description = fmt.Sprintf("Custom resource definition column (in JSONPath format): %s", c.JSONPath)
		}
		columns = append(columns, metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority,
		})
		cells = append(cells, cellFunc(c))
	}
	return columns, func(obj runtime.Object) []any {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil
		}
		row := make([]any, 0, len(cells))
		for _, f := range cells {
			row = append(row, f(u.Object))
		}
		return row
	}
}

// cellFunc returns a function that returns a column's value for an object. The value is nil if the path leads to
// nothing, or to a value of another type.
func cellFunc(c apiextensionsv1.CustomResourceColumnDefinition) func(map[string]any) any {
	path := "{" + c.JSONPath + "}"
	if jsonpath.New(c.Name).Parse(path) != nil {
		return func(map[string]any) any { return nil }
	}
	return func(content map[string]any) any {
		// A parsed path has state while it is evaluated, so each row has its own.
		p := jsonpath.New(c.Name).AllowMissingKeys(true)
		if p.Parse(path) != nil {
			return nil
		}
		results, err := p.FindResults(content)
		if err != nil || len(results) == 0 || len(results[0]) == 0 {
			return nil
		}
		if c.Type == "string" {
			var text bytes.Buffer
			if p.PrintResults(&text, results[0]) != nil {
				return nil
			}
			return text.String()
		}
		return cellValue(c.Type, results[0][0].Interface())
	}
}

// cellValue converts a value to a column's type.
func cellValue(kind string, v any) any {
	switch kind {
	case "integer":
		switch n := v.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := v.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := v.(bool); ok {
			return b
		}
	case "date":
		text, ok := v.(string)
		if !ok {
			return nil
		}
		when, err := time.Parse(time.RFC3339, strings.TrimSpace(text))
		if err != nil {
			return "<invalid>"
		}
		return duration.HumanDuration(time.Since(when))
	}
	return nil
}
