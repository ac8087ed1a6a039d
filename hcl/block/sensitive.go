package block

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Sensitive is the mark of values that come from a sensitive variable. Functions and templates propagate it.
const Sensitive = "sensitive"

// decode decodes a body into a struct. Structs cannot carry marks, so marked values are recorded as secrets.
func (x *Context) decode(body hcl.Body, eval *hcl.EvalContext, into any) hcl.Diagnostics {
	return sortDiagnostics(gohcl.DecodeBody(x.open(expandDynamic(body, eval)), eval, into))
}

// open returns a body whose expressions return values without marks.
func (x *Context) open(body hcl.Body) hcl.Body { return openBody{body, x} }

// unmark removes the marks from a value, and records all marked texts, numbers and bools as secrets.
func (x *Context) unmark(v cty.Value) cty.Value {
	plain, marked := v.UnmarkDeepWithPaths()
	for _, m := range marked {
		if part, err := m.Path.Apply(plain); err == nil {
			x.Secrets = append(x.Secrets, TextsIn(part)...)
		} else { // elements of sets have no path of their own
			x.Secrets = append(x.Secrets, TextsIn(plain)...)
		}
	}
	return plain
}

// TextsIn returns the texts, numbers and bools in a value, formatted as text.
func TextsIn(v cty.Value) (list []string) {
	v, _ = v.UnmarkDeep()
	_ = cty.Walk(v, func(_ cty.Path, e cty.Value) (bool, error) {
		if text, ok := textOf(e); ok {
			list = append(list, text)
		}
		return true, nil
	})
	return list
}

func textOf(v cty.Value) (string, bool) {
	if v.Type() != cty.String && v.Type() != cty.Number && v.Type() != cty.Bool || !v.IsKnown() || v.IsNull() {
		return "", false
	}
	v, err := convert.Convert(v, cty.String)
	if err != nil || v.AsString() == "" {
		return "", false
	}
	return v.AsString(), true
}

// MarkSecrets marks those parts of a block's value that equal or contain a secret of the block.
func MarkSecrets(v cty.Value, secrets []string) cty.Value {
	if len(secrets) == 0 || v == cty.NilVal {
		return v
	}
	marked, err := cty.Transform(v, func(_ cty.Path, e cty.Value) (cty.Value, error) {
		if e.IsMarked() {
			return e, nil
		}
		text, ok := textOf(e)
		for _, s := range secrets {
			if ok && (text == s || len(s) > 3 && strings.Contains(text, s)) {
				return e.Mark(Sensitive), nil
			}
		}
		return e, nil
	})
	if err != nil {
		return v.Mark(Sensitive)
	}
	return marked
}

// openBody is a body whose expressions return values without marks.
type openBody struct {
	hcl.Body
	x *Context
}

func (b openBody) Content(s *hcl.BodySchema) (*hcl.BodyContent, hcl.Diagnostics) {
	content, diags := b.Body.Content(s)
	return b.content(content), explain(diags, s)
}

func (b openBody) PartialContent(s *hcl.BodySchema) (*hcl.BodyContent, hcl.Body, hcl.Diagnostics) {
	content, rest, diags := b.Body.PartialContent(s)
	return b.content(content), openBody{rest, b.x}, diags
}

func (b openBody) JustAttributes() (hcl.Attributes, hcl.Diagnostics) {
	attributes, diags := b.Body.JustAttributes()
	return b.attributes(attributes), diags
}

func (b openBody) content(c *hcl.BodyContent) *hcl.BodyContent {
	if c == nil {
		return nil
	}
	opened := *c
	opened.Attributes = b.attributes(c.Attributes)
	opened.Blocks = nil
	for _, inner := range c.Blocks {
		copied := *inner
		copied.Body = openBody{inner.Body, b.x}
		opened.Blocks = append(opened.Blocks, &copied)
	}
	return &opened
}

func (b openBody) attributes(list hcl.Attributes) hcl.Attributes {
	opened := hcl.Attributes{}
	for name, a := range list {
		copied := *a
		copied.Expr = openExpression{a.Expr, b.x}
		opened[name] = &copied
	}
	return opened
}

type openExpression struct {
	hcl.Expression
	x *Context
}

func (e openExpression) Value(eval *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := e.Expression.Value(eval)
	return e.x.unmark(v), diags
}
