package load

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/data"
)

var yamlDecodeFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "text", Type: cty.String}},
	Type: func(a []cty.Value) (cty.Type, error) {
		if !a[0].IsKnown() {
			return cty.DynamicPseudoType, nil
		}
		v, err := yamlDocument(a[0].AsString())
		return v.Type(), err
	},
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) { return yamlDocument(a[0].AsString()) },
})

func yamlDocument(text string) (cty.Value, error) {
	v, err := data.YAMLDocument(text)
	if err != nil {
		return cty.DynamicVal, function.NewArgError(0, err)
	}
	return v, nil
}

var yamlEncodeFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "v", Type: cty.DynamicPseudoType, AllowNull: true, AllowDynamicType: true}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		if !a[0].IsWhollyKnown() {
			return cty.UnknownVal(cty.String), nil
		}
		out := &strings.Builder{}
		if err := encodeYAML(out, a[0], 0, false); err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.StringVal(out.String()), nil
	},
})

// encodeYAML writes a value in block style. Strings are quoted so that they cannot be read as another type. inside
// reports that the value follows a key.
func encodeYAML(out *strings.Builder, v cty.Value, depth int, inside bool) error {
	indent := strings.Repeat("  ", depth)
	ty := v.Type()
	switch {
	case v.IsNull():
		out.WriteString("null\n")
	case ty == cty.String:
		writeYAMLText(out, v.AsString(), indent)
	case ty == cty.Bool:
		fmt.Fprintf(out, "%t\n", v.True())
	case ty == cty.Number:
		out.WriteString(yamlNumber(v.AsBigFloat()) + "\n")
	case ty.IsCapsuleType():
		return fmt.Errorf("%s has no form in YAML", ty.FriendlyName())
	case v.LengthInt() == 0 && (ty.IsObjectType() || ty.IsMapType()):
		out.WriteString("{}\n")
	case v.LengthInt() == 0:
		out.WriteString("[]\n")
	case ty.IsObjectType() || ty.IsMapType():
		if inside {
			out.WriteString("\n" + indent)
		}
		first := true
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			if !first {
				out.WriteString(indent)
			}
			first = false
			out.WriteString(quoteYAML(key.AsString()) + ":")
			if err := encodeAfterKey(out, element, depth, element.Type().IsListType() || element.Type().IsSetType() ||
				element.Type().IsTupleType()); err != nil {
				return err
			}
		}
	default:
		if inside {
			out.WriteString("\n" + indent)
		}
		first := true
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			if !first {
				out.WriteString(indent)
			}
			first = false
			out.WriteString("- ")
			if err := encodeYAML(out, element, depth+1, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeAfterKey writes a value after its key. A sequence has the same indentation as the key.
func encodeAfterKey(out *strings.Builder, v cty.Value, depth int, sequence bool) error {
	block := !v.IsNull() && !v.Type().IsPrimitiveType() && !v.Type().IsCapsuleType() && v.LengthInt() > 0
	if !block {
		out.WriteString(" ")
	}
	if !sequence {
		depth++
	}
	return encodeYAML(out, v, depth, block)
}

// writeYAMLText writes a text of several lines as a literal block if that preserves it. It quotes all other texts.
func writeYAMLText(out *strings.Builder, s, indent string) {
	if !strings.Contains(s, "\n") || strings.ContainsRune(" \t\n", rune(s[0])) || strings.Trim(s, "\n") == "" ||
		isUnprintable(s) {
		out.WriteString(quoteYAML(s) + "\n")
		return
	}
	body := strings.TrimRight(s, "\n")
	switch ends := len(s) - len(body); ends {
	case 0:
		out.WriteString("|-\n")
	case 1:
		out.WriteString("|\n")
	default:
		out.WriteString("|+\n")
		body += strings.Repeat("\n", ends-1)
	}
	if indent == "" {
		indent = "  "
	}
	for _, line := range strings.Split(body, "\n") {
		if line != "" {
			line = indent + line
		}
		out.WriteString(line + "\n")
	}
}

func isUnprintable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 ||
			r == 0xfeff ||
			r >= 0x80 && r < 0xa0
	})
}

var yamlEscapes = map[rune]string{
	'"':    `\"`,
	'\\':   `\\`,
	'\n':   `\n`,
	'\t':   `\t`,
	'\r':   `\r`,
	0:      `\0`,
	'\a':   `\a`,
	'\b':   `\b`,
	'\v':   `\v`,
	'\f':   `\f`,
	0x1b:   `\e`,
	0x85:   `\N`,
	0xa0:   `\_`,
	0x2028: `\L`,
	0x2029: `\P`,
}

func quoteYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch escape, ok := yamlEscapes[r]; {
		case ok:
			b.WriteString(escape)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02X`, r)
		case r == 0xfeff:
			b.WriteString(`\uFEFF`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func yamlNumber(f *big.Float) string {
	exponent := f.MantExp(nil)
	switch {
	case f.IsInf() && f.Signbit():
		return "-.inf"
	case f.IsInf():
		return ".inf"
	case exponent > -200 && exponent < 1000:
		return f.Text('f', -1)
	}
	return f.Text('g', -1)
}
