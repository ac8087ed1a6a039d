package load

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/data"
)

// TestExtension is the extension of files with tests of a configuration.
const TestExtension = ".clustertest.hcl"

// FailedCondition is the address of the declaration whose condition failed, such as var.x, machine.n or check.spares.
type FailedCondition string

// Test is a file of test runs, which are carried out one after another on the same machines.
type Test struct {
	Path  string
	Runs  []*TestRun
	Files map[string]*hcl.File
}

// TestRun is a plan or an apply, with the assertions that must hold afterwards.
type TestRun struct {
	Name             string
	IsApply          bool
	ExpectedFailures []string // addresses whose conditions must fail
	vars             hcl.Attributes
	asserts          hcl.Blocks
	replace          hcl.Blocks
}

// LoadTests returns the tests in a configuration's directory and in its subdirectory tests.
func LoadTests(path string) ([]*Test, hcl.Diagnostics, map[string]*hcl.File) {
	parser := hclparse.NewParser()
	_, dir, err := configurationFiles(path)
	if err != nil {
		return nil, hcl.Diagnostics{newError(nil, "No configuration", "%v", err)}, nil
	}
	var paths []string
	for _, folder := range []string{dir, filepath.Join(dir, "tests")} {
		list, err := data.ListWithSuffix(folder, TestExtension)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && folder != dir) {
			return nil, hcl.Diagnostics{newError(nil, "Tests that cannot be listed", "%v", err)}, nil
		}
		paths = append(paths, list...)
	}
	var tests []*Test
	var diags hcl.Diagnostics
	for _, p := range paths {
		text, err := data.ReadFile(p)
		if err != nil {
			diags = append(diags, newError(nil, "File that cannot be read", "%v", err))
			continue
		}
		f, more := parseFile(parser, text, p)
		if diags = append(diags, more...); more.HasErrors() {
			continue
		}
		t, more := decodeTest(p, f.Body)
		diags = append(diags, more...)
		t.Files = parser.Files()
		tests = append(tests, t)
	}
	return tests, diags, parser.Files()
}

func decodeTest(path string, body hcl.Body) (*Test, hcl.Diagnostics) {
	t := &Test{Path: path}
	override := hcl.BlockHeaderSchema{Type: "override_data"}
	content, diags := block.ExplainErrors(body).Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "run", LabelNames: []string{"name"}}, {Type: "variables"}, override,
	}})
	common := hcl.Attributes{}
	var replace hcl.Blocks
	for _, b := range content.Blocks {
		switch b.Type {
		case "variables":
			attributes, more := b.Body.JustAttributes()
			diags = append(diags, more...)
			maps.Copy(common, attributes)
		case "override_data":
			replace = append(replace, b)
		}
	}
	for _, b := range content.Blocks {
		if b.Type != "run" {
			continue
		}
		r := &TestRun{Name: b.Labels[0], IsApply: true, vars: maps.Clone(common), replace: slices.Clone(replace)}
		inner, more := block.ExplainErrors(b.Body).Content(&hcl.BodySchema{
			Attributes: []hcl.AttributeSchema{{Name: "command"}, {Name: "expect_failures"}},
			Blocks:     []hcl.BlockHeaderSchema{{Type: "variables"}, {Type: "assert"}, override},
		})
		if diags = append(diags, more...); more.HasErrors() {
			continue
		}
		if slices.ContainsFunc(t.Runs, func(other *TestRun) bool { return other.Name == r.Name }) {
			diags = append(diags, newError(b.LabelRanges[0].Ptr(), "Duplicate run",
				"There is already a run %q in this file.", r.Name))
		}
		if a, ok := inner.Attributes["command"]; ok {
			word := hcl.ExprAsKeyword(a.Expr)
			if r.IsApply = word == "apply"; word != "apply" && word != "plan" {
				diags = append(diags, newError(a.Expr.Range().Ptr(), "Unknown command",
					"A run's command is plan or apply."))
			}
		}
		if a, ok := inner.Attributes["expect_failures"]; ok {
			list, more := block.Addresses(a.Expr)
			diags = append(diags, more...)
			r.ExpectedFailures = list
		}
		for _, part := range inner.Blocks {
			switch part.Type {
			case "variables":
				attributes, more := part.Body.JustAttributes()
				diags = append(diags, more...)
				maps.Copy(r.vars, attributes)
			case "override_data":
				r.replace = append(r.replace, part)
			default:
				r.asserts = append(r.asserts, part)
			}
		}
		t.Runs = append(t.Runs, r)
	}
	return t, diags
}

// Load loads the configuration of a run. before has the outputs of earlier runs, by name.
func (r *TestRun) Load(o Options, before map[string]cty.Value) (*Configuration, hcl.Diagnostics) {
	scope := &hcl.EvalContext{
		Functions: Functions(o.Path, o.now()),
		Variables: map[string]cty.Value{"run": cty.ObjectVal(before)},
	}
	o.Values, o.Overrides = map[string]cty.Value{}, map[string]cty.Value{}
	var diags hcl.Diagnostics
	for _, name := range slices.Sorted(maps.Keys(r.vars)) {
		v, more := r.vars[name].Expr.Value(scope)
		if diags = append(diags, more...); !more.HasErrors() {
			o.Values[name] = v
		}
	}
	for _, b := range r.replace {
		content, more := block.ExplainErrors(b.Body).Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
			{Name: "target", Required: true}, {Name: "values", Required: true},
		}})
		if diags = append(diags, more...); more.HasErrors() {
			continue
		}
		target, more := hcl.AbsTraversalForExpr(content.Attributes["target"].Expr)
		diags = append(diags, more...)
		v, more := content.Attributes["values"].Expr.Value(scope)
		if diags = append(diags, more...); !diags.HasErrors() {
			o.Overrides[block.Address(target)] = v
		}
	}
	if diags.HasErrors() {
		return &Configuration{}, diags
	}
	c, more := Load(o)
	return c, append(diags, more...)
}

// CheckAsserts returns the assertions of a run that do not hold. plan is the planned result.
func (r *TestRun) CheckAsserts(c *Configuration, plan cty.Value, before map[string]cty.Value) hcl.Diagnostics {
	scope := c.Scope.NewChild()
	scope.Variables = map[string]cty.Value{"run": cty.ObjectVal(before), "plan": plan, "output": c.Outputs}
	return block.CheckAsserts(r.asserts, scope)
}

// UnexpectedDiagnostics removes the expected failures from diags, and adds an error for each expected failure that did
// not occur.
func (r *TestRun) UnexpectedDiagnostics(diags hcl.Diagnostics) (list hcl.Diagnostics) {
	failed := map[string]bool{}
	for _, d := range diags {
		address, condition := d.Extra.(FailedCondition)
		named, _, _ := strings.Cut(string(address), "[")
		if condition && (slices.Contains(r.ExpectedFailures, string(address)) ||
			slices.Contains(r.ExpectedFailures, named)) {
			failed[string(address)], failed[named] = true, true
			continue
		}
		if d.Severity == hcl.DiagError || condition {
			list = append(list, d)
		}
	}
	for _, address := range r.ExpectedFailures {
		if !failed[address] {
			list = append(list, newError(nil, "Failure that was expected",
				"Every condition of %s holds in run %q, and one should not.", address, r.Name))
		}
	}
	return list
}
