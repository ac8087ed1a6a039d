package load

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"clusterctl/hcl/data"
)

// JSONExtension is the extension of configuration files in JSON.
const JSONExtension = Extension + ".json"

// parseFile parses a file in the syntax that its name indicates.
func parseFile(parser *hclparse.Parser, text []byte, path string) (*hcl.File, hcl.Diagnostics) {
	if strings.HasSuffix(path, ".json") {
		return parser.ParseJSON(data.WithoutBOM(text), path)
	}
	f, diags := parser.ParseHCL(text, path)
	if f != nil {
		if body, ok := f.Body.(*hclsyntax.Body); ok {
			refuseZeroDivisors(body)
		}
	}
	return f, diags
}

// jsonReferences returns the references in the expressions of a JSON body. Only a schema shows which properties are
// blocks, but that does not matter here, because expressions may be in all of them.
func jsonReferences(body hcl.Body) (list []hcl.Traversal) {
	attributes, _ := body.JustAttributes()
	var iterators []string
	for _, a := range attributes {
		iterators = iteratorsIn(a.Name, a.Expr, iterators, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if name == "depends_on" {
			continue
		}
		for _, t := range attributes[name].Expr.Variables() {
			if !slices.Contains(iterators, t.RootName()) {
				list = append(list, t)
			}
		}
	}
	return list
}

// iteratorsIn appends the iterator names of dynamic blocks to a list.
func iteratorsIn(name string, expr hcl.Expression, list []string, depth int) []string {
	if depth > 50 {
		return list
	}
	if items, diags := hcl.ExprList(expr); !diags.HasErrors() {
		for _, item := range items {
			list = iteratorsIn(name, item, list, depth+1)
		}
		return list
	}
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		return list
	}
	for _, p := range pairs {
		key, more := p.Key.Value(nil)
		if more.HasErrors() || !key.IsKnown() || key.IsNull() {
			continue
		}
		word := key.AsString()
		if name == "dynamic" {
			list = append(list, word)
		}
		if word == "iterator" {
			if v, more := p.Value.Value(nil); !more.HasErrors() && v.Type().FriendlyName() == "string" && v.IsKnown() &&
				!v.IsNull() {
				list = append(list, v.AsString())
			}
		}
		list = iteratorsIn(word, p.Value, list, depth+1)
	}
	return list
}
