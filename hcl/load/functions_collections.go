package load

import (
	"errors"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// anyList accepts a list of any type.
func anyList(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.List(cty.DynamicPseudoType)}
}

// indexFunc returns the index of a value in a list or tuple.
var indexFunc = function.New(&function.Spec{
	Params: []function.Parameter{
		{Name: "list", Type: cty.DynamicPseudoType},
		{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true, AllowDynamicType: true},
	},
	Type: function.StaticReturnType(cty.Number),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		if ty := a[0].Type(); !ty.IsListType() && !ty.IsTupleType() {
			return cty.NilVal, function.NewArgErrorf(0, "must be a list")
		}
		if a[0].LengthInt() == 0 {
			return cty.NilVal, function.NewArgErrorf(0, "cannot search an empty list")
		}
		if !a[1].IsKnown() {
			return cty.UnknownVal(cty.Number), nil
		}
		for it := a[0].ElementIterator(); it.Next(); {
			i, v := it.Element()
			same := equalValues(v, a[1])
			if !same.IsKnown() {
				return cty.UnknownVal(cty.Number), nil
			}
			if same.True() {
				return i, nil
			}
		}
		return cty.NilVal, errors.New("item not found")
	},
})

// equalValues compares two values. Values of types that cannot be converted to each other differ.
func equalValues(a, b cty.Value) cty.Value {
	if a.IsKnown() && b.IsKnown() && (a.IsNull() || b.IsNull()) {
		return cty.BoolVal(a.IsNull() && b.IsNull())
	}
	if _, conversions := convert.UnifyUnsafe([]cty.Type{a.Type(), b.Type()}); conversions == nil {
		return cty.False
	}
	same, err := stdlib.Equal(a, b)
	if err != nil {
		return cty.False
	}
	return same
}

// coalesceFunc returns the first argument that is neither null nor an empty string.
var coalesceFunc = function.New(&function.Spec{
	VarParam: &function.Parameter{
		Name:             "vals",
		Type:             cty.DynamicPseudoType,
		AllowUnknown:     true,
		AllowDynamicType: true,
		AllowNull:        true,
	},
	Type: func(a []cty.Value) (cty.Type, error) {
		types := make([]cty.Type, len(a))
		for i, v := range a {
			types[i] = v.Type()
		}
		ty, _ := convert.UnifyUnsafe(types)
		if len(a) == 0 || ty == cty.NilType {
			return cty.NilType, errors.New("all arguments must have the same type, and one is needed at least")
		}
		return ty, nil
	},
	Impl: func(a []cty.Value, ty cty.Type) (cty.Value, error) {
		for i, v := range a {
			v, err := convert.Convert(v, ty)
			switch {
			case err != nil:
				return cty.NilVal, function.NewArgError(i, err)
			case !v.IsKnown():
				return cty.UnknownVal(ty), nil
			case v.IsNull() || v.Type() == cty.String && v.AsString() == "":
				continue
			}
			return v, nil
		}
		return cty.NilVal, errors.New("no argument is other than null or an empty string")
	},
})

// lookupFunc is lookup(map, key, fallback). Without a fallback, a missing key is an error.
var lookupFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "map", Type: cty.DynamicPseudoType}, {Name: "key", Type: cty.String}},
	VarParam: &function.Parameter{
		Name:             "fallback",
		Type:             cty.DynamicPseudoType,
		AllowNull:        true,
		AllowUnknown:     true,
		AllowDynamicType: true,
	},
	Type: func(a []cty.Value) (cty.Type, error) {
		if len(a) > 3 {
			return cty.NilType, errors.New("lookup takes a map, a key and a fallback")
		}
		switch ty := a[0].Type(); {
		case ty.IsMapType():
			if len(a) == 3 {
				if _, err := convert.Convert(a[2], ty.ElementType()); err != nil {
					return cty.NilType, function.NewArgErrorf(2, "must have the type of the map's elements: %w", err)
				}
			}
			return ty.ElementType(), nil
		case ty.IsObjectType() && !a[1].IsKnown():
			return cty.DynamicPseudoType, nil
		case ty.IsObjectType() && ty.HasAttribute(a[1].AsString()):
			return ty.AttributeType(a[1].AsString()), nil
		case ty.IsObjectType() && len(a) == 3:
			return a[2].Type(), nil
		case ty.IsObjectType():
			return cty.NilType, missingKeyError(a[1])
		}
		return cty.NilType, function.NewArgErrorf(0, "must be a map or an object")
	},
	Impl: func(a []cty.Value, ty cty.Type) (cty.Value, error) {
		of, key := a[0].Type(), a[1].AsString()
		switch {
		case of.IsObjectType() && of.HasAttribute(key):
			return a[0].GetAttr(key), nil
		case of.IsMapType() && !a[0].HasIndex(a[1]).IsKnown():
			return cty.UnknownVal(ty), nil
		case of.IsMapType() && a[0].HasIndex(a[1]).True():
			return a[0].Index(a[1]), nil
		case len(a) == 3:
			return convert.Convert(a[2], ty)
		}
		return cty.NilVal, missingKeyError(a[1])
	},
})

func missingKeyError(key cty.Value) error {
	return function.NewArgErrorf(1, "there is no key %q; a third argument is the fallback", key.AsString())
}

// allTrueFunc reports whether all elements are true. Null counts as false.
var allTrueFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
	Type:   function.StaticReturnType(cty.Bool),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		all := cty.True
		for it := a[0].ElementIterator(); it.Next(); {
			switch _, v := it.Element(); {
			case !v.IsKnown():
				all = cty.UnknownVal(cty.Bool)
			case v.IsNull() || v.False():
				return cty.False, nil
			}
		}
		return all, nil
	},
})

// anyTrueFunc reports whether an element is true.
var anyTrueFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
	Type:   function.StaticReturnType(cty.Bool),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		some := cty.False
		for it := a[0].ElementIterator(); it.Next(); {
			switch _, v := it.Element(); {
			case !v.IsKnown():
				some = cty.UnknownVal(cty.Bool)
			case !v.IsNull() && v.True():
				return cty.True, nil
			}
		}
		return some, nil
	},
})

// oneFunc returns the only element of a list or set, or null if it is empty.
var oneFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type: func(a []cty.Value) (cty.Type, error) {
		switch ty := a[0].Type(); {
		case ty.IsListType() || ty.IsSetType():
			return ty.ElementType(), nil
		case ty.IsTupleType():
			switch elements := ty.TupleElementTypes(); len(elements) {
			case 0:
				return cty.DynamicPseudoType, nil
			case 1:
				return elements[0], nil
			}
			return cty.NilType, tooManyError(ty.Length())
		}
		return cty.NilType, function.NewArgErrorf(0, "must be a list or a set")
	},
	Impl: func(a []cty.Value, ty cty.Type) (cty.Value, error) {
		values := a[0].AsValueSlice()
		switch len(values) {
		case 0:
			return cty.NullVal(ty), nil
		case 1:
			return values[0], nil
		}
		return cty.NilVal, tooManyError(len(values))
	},
})

func tooManyError(n int) error {
	return function.NewArgErrorf(0, "must have at most one element, and has %d", n)
}

var sumFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		if ty := a[0].Type(); !ty.IsListType() && !ty.IsSetType() && !ty.IsTupleType() {
			return cty.NilVal, function.NewArgErrorf(0, "must be a list, a set or a tuple of numbers")
		}
		if a[0].LengthInt() == 0 {
			return cty.NilVal, function.NewArgErrorf(0, "cannot sum an empty list")
		}
		total := cty.Zero
		for _, v := range a[0].AsValueSlice() {
			n, err := convert.Convert(v, cty.Number)
			if err != nil || n.IsKnown() && n.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "must be a list, a set or a tuple of numbers")
			}
			total = total.Add(n)
		}
		return total, nil
	},
})

// matchKeysFunc returns the elements of a list whose keys, at the same positions in another list, are in a third list.
var matchKeysFunc = function.New(&function.Spec{
	Params: []function.Parameter{anyList("values"), anyList("keys"), anyList("search")},
	Type: func(a []cty.Value) (cty.Type, error) {
		if ty, _ := convert.UnifyUnsafe([]cty.Type{a[1].Type(), a[2].Type()}); ty == cty.NilType {
			return cty.NilType, errors.New("the keys and what is searched must have the same type")
		}
		return a[0].Type(), nil
	},
	Impl: func(a []cty.Value, ty cty.Type) (cty.Value, error) {
		if a[0].LengthInt() != a[1].LengthInt() {
			return cty.NilVal, errors.New("there must be as many keys as values")
		}
		values, keys, search := a[0].AsValueSlice(), a[1].AsValueSlice(), a[2].AsValueSlice()
		var found []cty.Value
		for i, key := range keys {
			for _, s := range search {
				same := equalValues(key, s)
				if !same.IsKnown() {
					return cty.UnknownVal(ty), nil
				}
				if same.True() {
					found = append(found, values[i])
					break
				}
			}
		}
		if len(found) == 0 {
			return cty.ListValEmpty(ty.ElementType()), nil
		}
		return cty.ListVal(found), nil
	},
})

// transposeFunc exchanges the keys and the elements of a map of lists.
var transposeFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "map", Type: cty.Map(cty.List(cty.String))}},
	Type:   function.StaticReturnType(cty.Map(cty.List(cty.String))),
	Impl: func(a []cty.Value, ty cty.Type) (cty.Value, error) {
		if !a[0].IsWhollyKnown() {
			return cty.UnknownVal(ty), nil
		}
		keys := map[string][]cty.Value{}
		for it := a[0].ElementIterator(); it.Next(); {
			key, list := it.Element()
			if list.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "has no list at %q, but null", key.AsString())
			}
			for _, v := range list.AsValueSlice() {
				if v.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "has null in the list at %q", key.AsString())
				}
				keys[v.AsString()] = append(keys[v.AsString()], key)
			}
		}
		lists := map[string]cty.Value{}
		for name, list := range keys {
			lists[name] = cty.ListVal(list)
		}
		if len(lists) == 0 {
			return cty.MapValEmpty(cty.List(cty.String)), nil
		}
		return cty.MapVal(lists), nil
	},
})
