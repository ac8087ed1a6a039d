package load

import (
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"clusterctl/hcl/block"
	"clusterctl/hcl/data"
)

// EnvPrefix is the prefix of environment variables that set variables.
const EnvPrefix = "CLUSTERCTL_VAR_"

// AutoExtension is the extension of files in the configuration's directory whose values are read automatically.
const AutoExtension = ".auto.clustervars"

type variable struct {
	valueType        cty.Type
	defaults         *typeexpr.Defaults
	defaultAttribute *hcl.Attribute
	isSensitive      bool
	isNullable       bool
	validations      []validation
}

type validation struct {
	condition hcl.Expression
	message   hcl.Expression
}

// givenValue is a value from outside the configuration, with its origin.
type givenValue struct {
	value  cty.Value
	text   string // not parsed yet if value is cty.NilVal
	origin string
	at     *hcl.Range
}

// typeWords are the words of type expressions. quoted matches a quoted word in a diagnostic.
var (
	typeWords  = []string{"string", "number", "bool", "any", "list", "set", "map", "object", "tuple", "optional"}
	quotedWord = regexp.MustCompile(`"(\w+)"`)
)

func decodeVariable(b *hcl.Block) (*variable, hcl.Diagnostics) {
	content, diags := block.ExplainErrors(b.Body).Content(&hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{
			{Name: "type"},
			{Name: "default"},
			{Name: "description"},
			{Name: "sensitive"},
			{Name: "nullable"},
		},
		Blocks: []hcl.BlockHeaderSchema{{Type: "validation"}},
	})
	v := &variable{valueType: cty.DynamicPseudoType, isNullable: true}
	if a, ok := content.Attributes["type"]; ok {
		var more hcl.Diagnostics
		v.valueType, v.defaults, more = typeexpr.TypeConstraintWithDefaults(a.Expr)
		for _, d := range more {
			if word := quotedWord.FindStringSubmatch(d.Detail); word != nil {
				d.Detail += block.Suggest(word[1], typeWords)
			}
		}
		diags = append(diags, more...)
	}
	v.defaultAttribute = content.Attributes["default"]
	for name, target := range map[string]*bool{"sensitive": &v.isSensitive, "nullable": &v.isNullable} {
		if a, ok := content.Attributes[name]; ok {
			value, more := a.Expr.Value(nil)
			diags = append(diags, more...)
			if more.HasErrors() || value.Type() != cty.Bool || value.IsNull() {
				diags = append(
					diags,
					&hcl.Diagnostic{
						Severity: hcl.DiagError,
						Summary:  "Invalid " + name,
						Detail:   "Write true or false.",
						Subject:  a.Expr.Range().Ptr(),
					},
				)
				continue
			}
			*target = value.True()
		}
	}
	for _, inner := range content.Blocks {
		c, more := block.ExplainErrors(inner.Body).Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
			{Name: "condition", Required: true}, {Name: "error_message", Required: true},
		}})
		diags = append(diags, more...)
		if !more.HasErrors() {
			v.validations = append(v.validations,
				validation{c.Attributes["condition"].Expr, c.Attributes["error_message"].Expr})
		}
	}
	return v, diags
}

// collectValues collects values from outside the configuration. Later sources take precedence: the environment, auto
// files in the order of their names, -var-file, and -var.
func (e *evaluator) collectValues(parser *hclparse.Parser, o Options) (map[string]givenValue, hcl.Diagnostics) {
	values := map[string]givenValue{}
	var diags hcl.Diagnostics
	for _, pair := range o.Environ {
		if name, text, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			name = strings.TrimPrefix(name, EnvPrefix)
			if _, declared := e.nodes["var."+name]; declared { // an undeclared name may be for another configuration
				values[name] = givenValue{text: text, origin: EnvPrefix + name}
			}
		}
	}
	var auto []string
	for _, suffix := range []string{AutoExtension, AutoExtension + ".json"} {
		list, err := data.ListWithSuffix(e.dir, suffix)
		if err != nil {
			return nil, hcl.Diagnostics{newError(nil, "Files of variables that cannot be listed", "%v", err)}
		}
		auto = append(auto, list...)
	}
	sort.Strings(auto)
	for _, path := range append(auto, o.VarFiles...) {
		text, err := os.ReadFile(path)
		if err != nil {
			diags = append(
				diags,
				&hcl.Diagnostic{
					Severity: hcl.DiagError,
					Summary:  "File of variables that cannot be read",
					Detail:   err.Error(),
				},
			)
			continue
		}
		f, more := parseFile(parser, text, path)
		diags = append(diags, more...)
		if f == nil || more.HasErrors() {
			continue
		}
		attributes, more := f.Body.JustAttributes()
		diags = append(diags, more...)
		for name, a := range attributes {
			v, more := a.Expr.Value(nil)
			diags = append(diags, more...)
			if !more.HasErrors() {
				values[name] = givenValue{value: v, origin: path, at: a.Range.Ptr()}
			}
		}
	}
	for _, pair := range o.Vars {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			diags = append(
				diags,
				&hcl.Diagnostic{
					Severity: hcl.DiagError,
					Summary:  "Invalid -var",
					Detail:   fmt.Sprintf("%q is not name=value.", pair),
				},
			)
			continue
		}
		values[name] = givenValue{text: text, origin: "-var " + name}
	}
	for name, v := range o.Values {
		values[name] = givenValue{value: v, origin: "the run"}
	}
	names := e.kinds["var"].names()
	for name, g := range values {
		if _, ok := e.nodes["var."+name]; !ok {
			diags = append(
				diags,
				&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Value for a variable that is not declared",
					Detail: fmt.Sprintf("%s sets %q, and the configuration has no variable %q.%s", g.origin, name, name,
						block.Suggest(name, names)), Subject: g.at},
			)
		}
	}
	return values, diags
}

// variableValue returns a variable's value, converted and validated.
func (e *evaluator) variableValue(n *node) (cty.Value, hcl.Diagnostics) {
	v := n.variable
	var diags hcl.Diagnostics
	g, ok := e.givenValues[n.name]
	at := n.at.Ptr()
	if e.parent != nil {
		if a := e.call.call.inputs[n.name]; a != nil {
			value, more := e.inputValue(a)
			if diags = append(diags, more...); diags.HasErrors() {
				return cty.DynamicVal, diags
			}
			g, ok = givenValue{value: value, origin: e.call.root + "." + e.call.name, at: a.Range.Ptr()}, true
		}
	}
	switch {
	case ok && g.value == cty.NilVal:
		g.value = parseText(g.text, v.valueType)
	case ok:
		at = g.at
	case v.defaultAttribute != nil:
		value, more := v.defaultAttribute.Expr.Value(nil)
		diags = append(diags, more...)
		g = givenValue{value: value, origin: "default"}
		at = v.defaultAttribute.Expr.Range().Ptr()
	case e.configuration.isModule:
		e.configuration.hasUnknown = true
		return cty.UnknownVal(v.valueType), diags
	default:
		return cty.DynamicVal, append(
			diags,
			&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No value for a variable",
				Detail: fmt.Sprintf("Variable %q has no default. Give it a value with -var '%s=…', in a file named by "+
					"-var-file or *%s, or in the environment as %s%s.", n.name, n.name, AutoExtension, EnvPrefix,
					n.name), Subject: n.at.Ptr()},
		)
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	value := g.value
	if v.defaults != nil && value.IsWhollyKnown() && !value.IsNull() {
		value = v.defaults.Apply(value)
	}
	value, err := convert.Convert(value, v.valueType)
	if err != nil {
		return cty.DynamicVal, append(
			diags,
			&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Value of the wrong type",
				Detail: fmt.Sprintf("Variable %q, from %s: %v. Its type is %s.", n.name, g.origin, err,
					typeexpr.TypeString(v.valueType)), Subject: at},
		)
	}
	if value.IsNull() && !v.isNullable {
		return cty.DynamicVal, append(
			diags,
			&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Null for a variable",
				Detail:   fmt.Sprintf("Variable %q must not be null.", n.name),
				Subject:  at,
			},
		)
	}
	if v.isSensitive {
		e.configuration.hasSensitive = true
		e.configuration.Cluster.Secrets = append(e.configuration.Cluster.Secrets, block.TextsIn(value)...)
		value = value.Mark(block.Sensitive)
	}
	return value, append(diags, e.validateVariable(n, v, value, at)...)
}

func (e *evaluator) validateVariable(n *node, v *variable, value cty.Value, at *hcl.Range) (diags hcl.Diagnostics) {
	scope := &hcl.EvalContext{
		Functions: e.functions,
		Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{n.name: value})},
	}
	for _, rule := range v.validations {
		result, more := rule.condition.Value(scope)
		diags = append(diags, more...)
		if more.HasErrors() {
			continue
		}
		result, _ = result.UnmarkDeep()
		result, err := convert.Convert(result, cty.Bool)
		if err == nil && !result.IsKnown() && !value.IsWhollyKnown() {
			continue // it is checked when a plan is made
		}
		if err != nil || result.IsNull() || !result.IsKnown() {
			diags = append(
				diags,
				&hcl.Diagnostic{
					Severity: hcl.DiagError,
					Summary:  "Invalid condition",
					Detail:   "A validation's condition must be true or false.",
					Subject:  rule.condition.Range().Ptr(),
				},
			)
			continue
		}
		if result.True() {
			continue
		}
		message, more := rule.message.Value(scope)
		diags = append(diags, more...)
		if message.ContainsMarked() {
			message = cty.StringVal(
				"The value is not valid. The rule's message has the sensitive value in it and is not shown.")
		}
		if text, err := convert.Convert(message, cty.String); err == nil && !text.IsNull() && text.IsKnown() {
			diags = append(
				diags,
				&hcl.Diagnostic{
					Severity: hcl.DiagError,
					Summary:  "Invalid value for variable " + n.name,
					Detail:   text.AsString(),
					Subject:  at,
				},
			)
		}
	}
	return diags
}

// parseText parses a value from a command line or the environment. For the type string it is the text itself, otherwise
// an expression.
func parseText(text string, ty cty.Type) cty.Value {
	if ty == cty.String {
		return cty.StringVal(text)
	}
	expr, diags := ParseExpression(text, "value")
	if !diags.HasErrors() {
		if v, diags := expr.Value(nil); !diags.HasErrors() {
			return v
		}
	}
	return cty.StringVal(text)
}
