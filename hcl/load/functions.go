package load

import (
	"time"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"clusterctl/hcl/block"
)

// Functions returns the functions of the language, which have Terraform's names. They read files relative to dir; now
// is the time of the run.
func Functions(dir string, now time.Time) map[string]function.Function {
	return functionsIn(place{dir: dir}, now)
}

// functionsIn returns the functions of the language for expressions of a place.
func functionsIn(in place, now time.Time) map[string]function.Function {
	f := map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc,

		"chomp": stdlib.ChompFunc, "format": boundedFormat(stdlib.FormatFunc),
		"formatlist": boundedFormat(stdlib.FormatListFunc), "indent": indentFunc,
		"join": stdlib.JoinFunc, "lower": stdlib.LowerFunc, "upper": stdlib.UpperFunc, "title": stdlib.TitleFunc,
		"regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc, "replace": replaceFunc, "split": stdlib.SplitFunc,
		"strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc,
		"trimsuffix": stdlib.TrimSuffixFunc, "trimspace": stdlib.TrimSpaceFunc, "startswith": affixFunc(true),
		"endswith":    affixFunc(false),
		"strcontains": strContainsFunc,

		"chunklist": stdlib.ChunklistFunc, "coalesce": coalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc,
		"concat":  stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "distinct": stdlib.DistinctFunc,
		"element": stdlib.ElementFunc,
		"flatten": stdlib.FlattenFunc, "index": indexFunc, "keys": stdlib.KeysFunc, "values": stdlib.ValuesFunc,
		"length": lengthFunc,
		"lookup": lookupFunc, "merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setproduct": setProductFunc,
		"setsubtract": stdlib.SetSubtractFunc,
		"setunion":    stdlib.SetUnionFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"zipmap":  stdlib.ZipmapFunc,
		"alltrue": allTrueFunc, "anytrue": anyTrueFunc, "one": oneFunc, "sum": sumFunc,
		"matchkeys": matchKeysFunc, "transpose": transposeFunc,

		"csvdecode": withoutBOM(stdlib.CSVDecodeFunc), "jsonencode": stdlib.JSONEncodeFunc,
		"jsondecode": withoutBOM(stdlib.JSONDecodeFunc),
		"yamlencode": yamlEncodeFunc, "yamldecode": yamlDecodeFunc,
		"base64encode": base64EncodeFunc, "base64decode": base64DecodeFunc, "urlencode": urlEncodeFunc,
		"urldecode":  urlDecodeFunc,
		"base64gzip": base64GzipFunc, "base64gunzip": base64GunzipFunc, "textencodebase64": textEncodeFunc,
		"textdecodebase64": textDecodeFunc,
		"bcrypt":           bcryptFunc, "rsadecrypt": rsaDecryptFunc,
		"sha256": hashFunc("sha256",
			false), "sha512": hashFunc("sha512", false), "sha1": hashFunc("sha1", false), "md5": hashFunc("md5", false),
		"base64sha256": hashFunc("sha256", true), "base64sha512": hashFunc("sha512", true), "uuidv5": uuidV5Func,

		"formatdate": stdlib.FormatDateFunc, "timeadd": stdlib.TimeAddFunc, "timecmp": timeCompareFunc,

		"cidrhost": cidrHostFunc, "cidrnetmask": cidrNetmaskFunc, "cidrsubnet": cidrSubnetFunc,
		"cidrsubnets": cidrSubnetsFunc,

		"tostring": conversionFunc(cty.String), "tonumber": conversionFunc(cty.Number),
		"tobool": conversionFunc(cty.Bool),
		"tolist": conversionFunc(cty.List(cty.DynamicPseudoType)),
		"toset":  conversionFunc(cty.Set(cty.DynamicPseudoType)),
		"tomap":  conversionFunc(cty.Map(cty.DynamicPseudoType)),
		"can":    tryfunc.CanFunc, "try": tryfunc.TryFunc, "nonsensitive": sensitivityFunc(false),
		"sensitive":   sensitivityFunc(true),
		"issensitive": isSensitiveFunc, "ephemeralasnull": ephemeralAsNullFunc, "type": typeFunc,

		"abspath": absPathFunc, "basename": baseNameFunc, "dirname": dirNameFunc, "pathexpand": pathExpandFunc,
	}
	addRunFunctions(f, now)
	addFileFunctions(f, in)
	if in.root != "" {
		for name, reason := range refusedFunctions {
			f[name] = refusedFunc(name, reason)
		}
	}
	return f
}

// conversionFunc returns a function that converts to a type.
func conversionFunc(want cty.Type) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "v", Type: cty.DynamicPseudoType, AllowNull: true, AllowDynamicType: true}},
		Type: func(args []cty.Value) (cty.Type, error) {
			if args[0].Type() == cty.DynamicPseudoType {
				return want, nil
			}
			v, err := convert.Convert(args[0], want)
			if err != nil {
				return cty.NilType, function.NewArgError(0, err)
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, ret cty.Type) (cty.Value, error) {
			v, err := convert.Convert(args[0], ret)
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			return v, nil
		},
	})
}

// sensitivityFunc returns the function sensitive or nonsensitive.
func sensitivityFunc(hide bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{
			{
				Name:             "v",
				Type:             cty.DynamicPseudoType,
				AllowNull:        true,
				AllowUnknown:     true,
				AllowDynamicType: true,
				AllowMarked:      true,
			},
		},
		Type: func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if hide {
				return args[0].Mark(block.Sensitive), nil
			}
			v, marks := args[0].Unmark()
			delete(marks, block.Sensitive)
			return v.WithMarks(marks), nil
		},
	})
}

// textFunc returns a function of n strings.
func textFunc(n int, f func(args []string) (string, error)) function.Function {
	spec := &function.Spec{Type: function.StaticReturnType(cty.String)}
	for range n {
		spec.Params = append(spec.Params, function.Parameter{Name: "s", Type: cty.String})
	}
	spec.Impl = func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		texts := make([]string, len(args))
		for i, a := range args {
			texts[i] = a.AsString()
		}
		out, err := f(texts)
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.StringVal(out), nil
	}
	return function.New(spec)
}
