package block

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"clusterctl/hcl/config"
)

// decodeObject decodes an API object. namespace, labels and annotations are shorthands for fields of metadata. Every
// other attribute is a field of the object.
func decodeObject(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	apiVersion, kind, name := b.Labels[0], b.Labels[1], b.Labels[2]
	lifecycle, rest, diags := decodeLifecycle(x, b)
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	attributes, diags := x.open(rest).JustAttributes()
	if native, ok := nativeBody(rest); ok && !slices.ContainsFunc(native.Blocks, isField) {
		diags = nil // JustAttributes also reports the blocks that were decoded above
	}
	if diags.HasErrors() {
		return cty.NilVal, append(diags, newError(b.DefRange.Ptr(), "Block inside an object",
			"An object's fields are written as attributes: spec = { … }."))
	}
	content := map[string]any{"apiVersion": apiVersion, "kind": kind}
	metadata := map[string]any{}
	for field, a := range attributes {
		v, more := a.Expr.Value(x.Eval)
		diags = append(diags, more...)
		if more.HasErrors() {
			continue
		}
		plain, err := ToPlain(v)
		if err != nil {
			diags = append(diags, newError(a.Expr.Range().Ptr(), "Invalid value", "%v.", err))
			continue
		}
		switch field {
		case "apiVersion", "kind", "status":
			diags = append(diags, newError(a.Range.Ptr(), "Field that is not written here",
				"%s is not an attribute of an object block: the block's labels say apiVersion, kind and name, "+
					"and status is the cluster's.", field))
		case "metadata":
			fields, ok := plain.(map[string]any)
			if !ok {
				diags = append(diags, newError(a.Expr.Range().Ptr(), "Invalid metadata", "metadata is an object."))
				continue
			}
			for k, v := range fields {
				metadata[k] = v
			}
		case "namespace", "labels", "annotations":
			metadata[field] = plain
		default:
			content[field] = plain
		}
	}
	if own, ok := metadata["name"].(string); !ok || own == "" {
		metadata["name"] = name
		if x.instance.kind != notRepeated || x.Module != "" {
			metadata["name"] = x.defaultName(name)
		}
	}
	content["metadata"] = metadata
	ignored, more := lifecycle.decodeIgnored(objectField(apiVersion, kind, true))
	diags = append(diags, more...)
	written := x.fullAddress(fmt.Sprintf("object.%s.%s.%s", apiVersion, kind, name))
	address := written
	if ns, ok := metadata["namespace"].(string); ok {
		address = x.fullAddress(fmt.Sprintf("object.%s.%s.%s/%s", apiVersion, kind, ns, name))
	}
	if !diags.HasErrors() {
		diags = append(diags, checkFields(b, attributes, content)...)
	}
	c.Objects = append(c.Objects, config.Object{Address: address, Block: written,
		PreventDestroy: lifecycle.preventDestroy(), Ignored: ignored, Content: content, DependsOn: x.dependsOn,
		Source: sourceOf(b)})
	return cty.NilVal, diags
}

// isField reports whether a block inside an object block is a field of the object, and not one of the blocks that
// every block can have.
func isField(inner *hclsyntax.Block) bool {
	return !slices.Contains([]string{"lifecycle", "precondition", "postcondition"}, inner.Type)
}

// checkFields validates the object. It finds the invalid attribute by validating each attribute alone.
func checkFields(b *hcl.Block, attributes hcl.Attributes, content map[string]any) (diags hcl.Diagnostics) {
	version, kind := content["apiVersion"], content["kind"]
	if _, err := checkKind(b.Labels[0], b.Labels[1]); err != nil {
		return hcl.Diagnostics{newError(b.LabelRanges[1].Ptr(), "Unknown kind", "%s", sentence(err))}
	}
	all := checkObject(content, true)
	if all == nil {
		return nil
	}
	if refused := (*invalidObjectError)(nil); errors.As(all, &refused) {
		return refused.diagnose(b, attributes)
	}
	for _, field := range slices.Sorted(maps.Keys(attributes)) {
		name := field
		if field == "namespace" || field == "labels" || field == "annotations" {
			name = "metadata"
		}
		if err := checkObject(map[string]any{"apiVersion": version, "kind": kind, name: content[name]},
			false); err != nil {
			diags = append(diags, newError(attributes[field].Range.Ptr(), "Invalid object", "%s", sentence(err)))
		}
	}
	if len(diags) == 0 {
		diags = append(diags, newError(b.DefRange.Ptr(), "Invalid object", "%s", sentence(all)))
	}
	return diags
}

// diagnose returns a diagnostic for each validation error, at the attribute that causes the error.
func (e *invalidObjectError) diagnose(b *hcl.Block, attributes hcl.Attributes) (diags hcl.Diagnostics) {
	for _, one := range e.errs {
		parts := strings.FieldsFunc(one.Field, func(r rune) bool { return r == '.' || r == '[' })
		where := b.DefRange.Ptr()
		switch {
		case len(parts) == 0:
		case attributes[parts[0]] != nil:
			where = attributes[parts[0]].Range.Ptr()
		case parts[0] == "metadata" && len(parts) > 1 && attributes[parts[1]] != nil:
			where = attributes[parts[1]].Range.Ptr()
		case parts[0] == "metadata" && len(parts) > 1 && parts[1] == "name":
			where = b.LabelRanges[2].Ptr()
		}
		diags = append(diags, newError(where, "Object that the API refuses", "%s", sentence(one)))
	}
	return diags
}

// sentence returns an error's text with a final full stop.
func sentence(err error) string {
	text := err.Error()
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// ToPlain converts a value to the types of encoding/json: maps, slices, strings, float64 or int64, bools and nil.
func ToPlain(v cty.Value) (any, error) {
	if !v.IsWhollyKnown() {
		return nil, fmt.Errorf("the value is not known before the cluster is there")
	}
	if err := checkFinite(v); err != nil {
		return nil, err
	}
	text, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return nil, err
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // float64 would lose digits of large integers
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	return convertNumbers(plain)
}

// checkFinite returns an error if a value contains an infinite number, which JSON cannot represent.
func checkFinite(v cty.Value) error {
	return cty.Walk(v, func(_ cty.Path, e cty.Value) (bool, error) {
		if e.Type() == cty.Number && e.IsKnown() && !e.IsNull() && e.AsBigFloat().IsInf() {
			return false, errors.New("it contains an infinite number, such as the result of log(0, 10) or of a very " +
				"large power")
		}
		return true, nil
	})
}

// convertNumbers converts every json.Number in v to int64 if it is an integer of that range, and to float64 otherwise.
// API machinery distinguishes the two types.
func convertNumbers(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err == nil && f == float64(int64(f)) && math.Abs(f) < 1<<53 { // 1e3
			return int64(f), nil
		}
		return f, err
	case map[string]any:
		for k, e := range v {
			if v[k], err = convertNumbers(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range v {
			if v[i], err = convertNumbers(e); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func convertTo(v cty.Value, ty cty.Type) (cty.Value, error) { return convert.Convert(v, ty) }
