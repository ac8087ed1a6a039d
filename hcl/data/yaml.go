package data

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// maxYAMLValues limits how many values the aliases of a short text can create.
const maxYAMLValues = 1 << 20

// YAML returns the value of a YAML text. Several documents become a list. Empty documents are left out.
func YAML(text []byte) (cty.Value, error) {
	list, err := decodeDocuments(text)
	if err != nil {
		return cty.DynamicVal, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return cty.TupleVal(list), nil
}

// YAMLDocument returns the value of a text that has one document.
func YAMLDocument(text string) (cty.Value, error) {
	list, err := decodeDocuments([]byte(text))
	if err != nil {
		return cty.DynamicVal, err
	}
	if len(list) > 1 {
		return cty.DynamicVal, errors.New("only one YAML document is permitted")
	}
	return list[0], nil
}

// decodeDocuments decodes documents according to YAML 1.2: yes and on are strings, and numbers keep all digits.
func decodeDocuments(text []byte) (list []cty.Value, err error) {
	decoder := nodes.NewDecoder(bytes.NewReader(text))
	d := yamlDecoder{openNodes: map[*nodes.Node]bool{}}
	for n := 1; ; n++ {
		var document nodes.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		v := cty.NilVal
		if err == nil {
			v, err = d.value(&document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(document.Content) > 0 && document.Content[0].Kind == nodes.ScalarNode &&
			document.Content[0].Value == "" &&
			v.IsNull() {
			continue
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		list = []cty.Value{cty.NullVal(cty.DynamicPseudoType)}
	}
	return list, nil
}

type yamlDecoder struct {
	openNodes map[*nodes.Node]bool // collections that are being decoded, to detect cycles
	values    int
}

func (d *yamlDecoder) value(n *nodes.Node) (cty.Value, error) {
	if d.values++; d.values > maxYAMLValues {
		return cty.DynamicVal, fmt.Errorf("it stands for more than %d values", maxYAMLValues)
	}
	switch n.Kind {
	case nodes.DocumentNode:
		if len(n.Content) == 0 {
			return cty.NullVal(cty.DynamicPseudoType), nil
		}
		return d.value(n.Content[0])
	case nodes.AliasNode:
		if d.openNodes[n.Alias] {
			return cty.DynamicVal, fmt.Errorf("line %d: cannot refer to anchor %q from inside its own definition",
				n.Line, n.Value)
		}
		return d.value(n.Alias)
	case nodes.ScalarNode:
		v, err := yamlScalar(n)
		if err != nil {
			err = fmt.Errorf("line %d: %w", n.Line, err)
		}
		return v, err
	}
	d.openNodes[n] = true
	defer delete(d.openNodes, n)
	switch tag := n.ShortTag(); {
	case n.Kind == nodes.SequenceNode && tag == "!!seq":
		list := []cty.Value{}
		for _, element := range n.Content {
			v, err := d.value(element)
			if err != nil {
				return v, err
			}
			list = append(list, v)
		}
		return cty.TupleVal(list), nil
	case n.Kind == nodes.MappingNode && tag == "!!map":
		attributes := map[string]cty.Value{}
		err := d.mapping(n, attributes)
		return cty.ObjectVal(attributes), err
	default:
		return cty.DynamicVal, fmt.Errorf("line %d: unsupported tag %q", n.Line, tag)
	}
}

// mapping adds the entries of a mapping. Its own entries take precedence over merged ones.
func (d *yamlDecoder) mapping(n *nodes.Node, attributes map[string]cty.Value) error {
	own := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, of := n.Content[i], n.Content[i+1]
		if key.Kind == nodes.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			if err := d.merge(of, attributes, own); err != nil {
				return err
			}
			continue
		}
		if key.Kind != nodes.ScalarNode {
			return fmt.Errorf("line %d: a mapping's key must be text", key.Line)
		}
		name := key.Value
		if own[name] {
			return fmt.Errorf("line %d: the key %q is there twice", key.Line, name)
		}
		v, err := d.value(of)
		if err != nil {
			return err
		}
		own[name], attributes[name] = true, v
	}
	return nil
}

func (d *yamlDecoder) merge(of *nodes.Node, attributes map[string]cty.Value, own map[string]bool) error {
	if of.Kind == nodes.SequenceNode {
		merged := map[string]bool{}
		for _, element := range of.Content {
			if err := d.mergeMapping(element, attributes, own, merged); err != nil {
				return err
			}
		}
		return nil
	}
	return d.mergeMapping(of, attributes, own, map[string]bool{})
}

// mergeMapping merges one mapping. If several are merged, the first takes precedence.
func (d *yamlDecoder) mergeMapping(of *nodes.Node, attributes map[string]cty.Value, own, merged map[string]bool) error {
	v, err := d.value(of)
	if err != nil {
		return err
	}
	if !v.Type().IsObjectType() {
		return fmt.Errorf("line %d: only mappings can be merged", of.Line)
	}
	for name, value := range v.AsValueMap() {
		if !own[name] && !merged[name] {
			attributes[name], merged[name] = value, true
		}
	}
	return nil
}

var (
	yamlInteger = regexp.MustCompile(`^[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$`)
	yamlFloat   = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$`)
)

func yamlScalar(n *nodes.Node) (cty.Value, error) {
	tag := n.ShortTag()
	plain := n.Style&(nodes.DoubleQuotedStyle|nodes.SingleQuotedStyle|nodes.LiteralStyle|nodes.FoldedStyle) == 0
	if plain && n.Style&nodes.TaggedStyle == 0 {
		return yamlPlain(n.Value, tag), nil
	}
	switch tag {
	case "!!str":
		return cty.StringVal(n.Value), nil
	case "!!binary":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return cty.DynamicVal, err
		}
		return cty.StringVal(base64.StdEncoding.EncodeToString(raw)), nil
	case "!!int", "!!float":
		if v := yamlPlain(n.Value, tag); v.Type() == cty.Number {
			return v, nil
		}
	case "!!bool", "!!timestamp", "!!null":
		if v := yamlPlain(n.Value, tag); v.Type() != cty.String || tag == "!!timestamp" {
			return v, nil
		}
	default:
		return cty.DynamicVal, fmt.Errorf("unsupported tag %q", tag)
	}
	return cty.DynamicVal, fmt.Errorf("%q is no %s", n.Value, tag)
}

// yamlPlain returns the value of a plain scalar.
func yamlPlain(text, tag string) cty.Value {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return cty.NullVal(cty.DynamicPseudoType)
	case "true", "True", "TRUE":
		return cty.True
	case "false", "False", "FALSE":
		return cty.False
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		return cty.PositiveInfinity
	case "-.inf", "-.Inf", "-.INF":
		return cty.NegativeInfinity
	}
	if yamlInteger.MatchString(text) {
		digits := strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", "")
		base := 10
		if len(strings.TrimPrefix(digits, "-")) > 1 && strings.ContainsAny(digits, "box") {
			base = 0
		}
		if i, ok := new(big.Int).SetString(digits, base); ok {
			return cty.NumberVal(new(big.Float).SetPrec(uint(max(512, i.BitLen()))).SetInt(i))
		}
	}
	if yamlFloat.MatchString(text) {
		if v, err := cty.ParseNumberVal(strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", "")); err == nil {
			return v
		}
	}
	if tag == "!!timestamp" {
		for _, layout := range []string{time.RFC3339Nano, "2006-1-2T15:4:5.999999999Z07:00",
			"2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2 15:4:5.999999999 Z07:00"} {
			if t, err := time.Parse(layout, text); err == nil {
				return cty.StringVal(t.Format(time.RFC3339))
			}
		}
		if t, err := time.Parse("2006-1-2", text); err == nil {
			return cty.StringVal(t.Format(time.RFC3339))
		}
	}
	return cty.StringVal(text)
}
