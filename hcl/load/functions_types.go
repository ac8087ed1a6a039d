package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
)

// anyParameter is a parameter that accepts every value.
var anyParameter = function.Parameter{
	Name:             "v",
	Type:             cty.DynamicPseudoType,
	AllowNull:        true,
	AllowUnknown:     true,
	AllowDynamicType: true,
	AllowMarked:      true,
}

// isSensitiveFunc reports whether a value is sensitive as a whole.
var isSensitiveFunc = function.New(&function.Spec{
	Params: []function.Parameter{anyParameter},
	Type:   function.StaticReturnType(cty.Bool),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		if !a[0].HasMark(block.Sensitive) && !a[0].IsKnown() {
			return cty.UnknownVal(cty.Bool), nil
		}
		return cty.BoolVal(a[0].HasMark(block.Sensitive)), nil
	},
})

// ephemeralAsNullFunc returns its argument, because no value of this language is ephemeral.
var ephemeralAsNullFunc = function.New(&function.Spec{
	Params: []function.Parameter{anyParameter},
	Type:   func(a []cty.Value) (cty.Type, error) { return a[0].Type(), nil },
	Impl:   func(a []cty.Value, _ cty.Type) (cty.Value, error) { return a[0], nil },
})

// typeFunc returns a value's type, as text.
var typeFunc = function.New(&function.Spec{
	Params: []function.Parameter{anyParameter},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		return cty.StringVal(TypeText(a[0].Type())), nil
	},
})

// TypeText formats a type over several lines, as Terraform's console does.
func TypeText(ty cty.Type) string {
	out := &strings.Builder{}
	writeType(out, ty, 0)
	return out.String()
}

func writeType(out *strings.Builder, ty cty.Type, depth int) {
	indent := strings.Repeat("    ", depth+1)
	end := strings.Repeat("    ", depth)
	switch {
	case ty == cty.DynamicPseudoType:
		out.WriteString("dynamic")
	case ty.IsPrimitiveType():
		out.WriteString(ty.FriendlyName())
	case ty.IsCollectionType():
		kind := map[bool]string{ty.IsListType(): "list", ty.IsSetType(): "set", ty.IsMapType(): "map"}[true]
		out.WriteString(kind + "(")
		writeType(out, ty.ElementType(), depth)
		out.WriteString(")")
	case ty.IsObjectType() && len(ty.AttributeTypes()) == 0:
		out.WriteString("object({})")
	case ty.IsObjectType():
		out.WriteString("object({\n")
		for _, name := range sortedKeys(ty.AttributeTypes()) {
			out.WriteString(indent + attributeName(name) + ": ")
			writeType(out, ty.AttributeType(name), depth+1)
			out.WriteString(",\n")
		}
		out.WriteString(end + "})")
	case ty.IsTupleType() && ty.Length() == 0:
		out.WriteString("tuple([])")
	case ty.IsTupleType():
		out.WriteString("tuple([\n")
		for _, element := range ty.TupleElementTypes() {
			out.WriteString(indent)
			writeType(out, element, depth+1)
			out.WriteString(",\n")
		}
		out.WriteString(end + "])")
	default:
		fmt.Fprintf(out, "%s", ty.FriendlyName())
	}
}

func attributeName(name string) string {
	if hclsyntax.ValidIdentifier(name) {
		return name
	}
	return string(hclwrite.TokensForValue(cty.StringVal(name)).Bytes())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
