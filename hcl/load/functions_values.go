package load

import (
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// replaceFunc interprets a pattern of the form /…/ as a regular expression, and any other literally.
var replaceFunc = textFunc(3, func(a []string) (string, error) {
	if p := a[1]; len(p) > 1 && strings.HasPrefix(p, "/") && strings.HasSuffix(p, "/") {
		re, err := regexp.Compile(p[1 : len(p)-1])
		if err != nil {
			return "", err
		}
		return re.ReplaceAllString(a[0], a[2]), nil
	}
	return strings.ReplaceAll(a[0], a[1], a[2]), nil
})

func affixFunc(start bool) function.Function {
	return predicateFunc(func(s, part string) bool {
		if start {
			return strings.HasPrefix(s, part)
		}
		return strings.HasSuffix(s, part)
	})
}

var strContainsFunc = predicateFunc(strings.Contains)

func predicateFunc(f func(s, part string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "s", Type: cty.String}, {Name: "part", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(f(a[0].AsString(), a[1].AsString())), nil
		},
	})
}

// lengthFunc returns the number of characters of a string, or of elements of a collection.
var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "v", Type: cty.DynamicPseudoType, AllowDynamicType: true}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		ty := a[0].Type()
		switch {
		case ty == cty.String:
			return stdlib.Strlen(a[0])
		case ty.IsObjectType():
			return cty.NumberIntVal(int64(len(ty.AttributeTypes()))), nil
		case a[0].CanIterateElements():
			return a[0].Length(), nil
		}
		return cty.NilVal, function.NewArgErrorf(0, "a string, list, set, map or object has a length, %s has not",
			ty.FriendlyName())
	},
})
