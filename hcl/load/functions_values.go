package load

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// replaceFunc takes /…/ as a regular expression and anything else literally.
var replaceFunc = text(3, func(a []string) (string, error) {
	if p := a[1]; len(p) > 1 && strings.HasPrefix(p, "/") && strings.HasSuffix(p, "/") {
		re, err := regexp.Compile(p[1 : len(p)-1])
		if err != nil {
			return "", err
		}
		return re.ReplaceAllString(a[0], a[2]), nil
	}
	return strings.ReplaceAll(a[0], a[1], a[2]), nil
})

func affix(start bool) function.Function {
	return predicate(func(s, part string) bool {
		if start {
			return strings.HasPrefix(s, part)
		}
		return strings.HasSuffix(s, part)
	})
}

var strContainsFunc = predicate(strings.Contains)

func predicate(f func(s, part string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "s", Type: cty.String}, {Name: "part", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(f(a[0].AsString(), a[1].AsString())), nil
		},
	})
}

// lengthFunc counts characters of a string, else elements.
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
		return cty.NilVal, function.NewArgErrorf(0, "a string, list, set, map or object has a length, %s has not", ty.FriendlyName())
	},
})

// lookupFunc is lookup(map, key, fallback); without a fallback a missing key is an error.
var lookupFunc = function.New(&function.Spec{
	Params:   []function.Parameter{{Name: "map", Type: cty.DynamicPseudoType}, {Name: "key", Type: cty.String}},
	VarParam: &function.Parameter{Name: "fallback", Type: cty.DynamicPseudoType, AllowNull: true},
	Type: func(a []cty.Value) (cty.Type, error) {
		v, err := lookup(a)
		return v.Type(), err
	},
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) { return lookup(a) },
})

func lookup(a []cty.Value) (cty.Value, error) {
	if !a[0].IsWhollyKnown() || !a[1].IsKnown() {
		return cty.DynamicVal, nil
	}
	if len(a) > 3 {
		return cty.DynamicVal, errors.New("lookup takes a map, a key and a fallback")
	}
	ty, key := a[0].Type(), a[1].AsString()
	switch {
	case ty.IsObjectType() && ty.HasAttribute(key):
		return a[0].GetAttr(key), nil
	case ty.IsMapType() && a[0].HasIndex(a[1]).True():
		return a[0].Index(a[1]), nil
	case !ty.IsObjectType() && !ty.IsMapType():
		return cty.DynamicVal, function.NewArgErrorf(0, "must be a map or an object")
	case len(a) == 3:
		return a[2], nil
	}
	return cty.DynamicVal, fmt.Errorf("there is no key %q; a third argument is the fallback", key)
}

func allOrAny(all bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			for it := a[0].ElementIterator(); it.Next(); {
				if _, v := it.Element(); !v.IsNull() && v.True() != all {
					return cty.BoolVal(!all), nil
				}
			}
			return cty.BoolVal(all), nil
		},
	})
}

// oneFunc returns the only element of a list or set, null when there is none.
var oneFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type: func(a []cty.Value) (cty.Type, error) {
		v, err := one(a[0])
		return v.Type(), err
	},
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) { return one(a[0]) },
})

func one(list cty.Value) (cty.Value, error) {
	if !list.CanIterateElements() {
		return cty.DynamicVal, function.NewArgErrorf(0, "must be a list or a set")
	}
	values := list.AsValueSlice()
	switch len(values) {
	case 0:
		return cty.NullVal(cty.DynamicPseudoType), nil
	case 1:
		return values[0], nil
	}
	return cty.DynamicVal, function.NewArgErrorf(0, "must have at most one element, it has %d", len(values))
}

var sumFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		if !a[0].CanIterateElements() || a[0].LengthInt() == 0 {
			return cty.NilVal, function.NewArgErrorf(0, "must be a list of at least one number")
		}
		total := cty.Zero
		for _, v := range a[0].AsValueSlice() {
			n, err := convert.Convert(v, cty.Number)
			if err != nil || n.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "must hold numbers only")
			}
			total = total.Add(n)
		}
		return total, nil
	},
})
