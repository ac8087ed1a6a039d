package expression

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	"pgregory.net/rapid"
)

// compile returns the program of an expression.
func compile(t *testing.T, env *cel.Env, text string) cel.Program {
	t.Helper()
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// evaluate returns the value of a program.
func evaluate(program cel.Program, variables map[string]any) (any, error) {
	value, _, err := program.Eval(variables)
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

// declare returns an environment with variables of any type.
func declare(t *testing.T, env *cel.Env, variables map[string]any) *cel.Env {
	t.Helper()
	var options []cel.EnvOption
	for name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	declared, err := env.Extend(options...)
	if err != nil {
		t.Fatal(err)
	}
	return declared
}

// environments returns the environments of new and of stored expressions, and the one that the libraries share.
func environments(t *testing.T, variables map[string]any) map[string]*cel.Env {
	t.Helper()
	shared := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	return map[string]*cel.Env{
		"new":    declare(t, Environment().NewExpressionsEnv(), variables),
		"stored": declare(t, Environment().StoredExpressionsEnv(), variables),
		"shared": declare(t, shared.StoredExpressionsEnv(), variables),
	}
}

// items returns n different texts.
func items(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("item-", i)
	}
	return list
}

// A call whose work or result would be far larger than its arguments is not made.
func TestExpensiveCallsEndTheEvaluation(t *testing.T) {
	long := strings.Repeat("a", 1_000_000)
	variables := map[string]any{
		"text": "1e-999999999", "digits": strings.Repeat("9", 1_000_000), "long": long, "half": long[:500_000] + "b",
		"many": items(100_000), "others": items(100_001)[1:], "empty": "",
		"format": "%.1000000f", "digit": "%." + strings.Repeat("9", 30) + "f",
	}
	const cancelled = "actual cost limit exceeded"
	all := environments(t, variables)
	for expression, want := range map[string]string{
		"quantity(text).isGreaterThan(quantity('1'))": "quantities must have at most",
		"quantity(digits).asApproximateFloat() > 1.0": "quantities must have at most",
		"isQuantity(text)":                            "false",
		"isQuantity(digits)":                          "false",
		"sets.contains(many, others)":                 cancelled,
		"sets.intersects(many, others)":               cancelled,
		"sets.equivalent(many, others)":               cancelled,
		"true || sets.contains(many, many)":           "true", // it is not evaluated
		"sets.contains(many, others) || true":         cancelled,
		"many.distinct().size() > 1":                  cancelled,
		"long.find(half) == ''":                       cancelled,
		"long.findAll(half).size() > 1":               cancelled,
		"long.findAll(half, 1).size() > 1":            cancelled,
		"long.matches(half)":                          cancelled,
		"long.indexOf(half)":                          "-1",
		"long.lastIndexOf(half)":                      "-1",
		"many.join(long) == ''":                       cancelled,
		"long.replace(empty, long) == ''":             "replace: the text after the replacements has more than",
		"long.replace('a', long, 9) == ''":            "replace: the text after the replacements has more than",
		"format.format([1.5]) == ''":                  "format: a number has more than 100 digits after the point",
		"digit.format([1.5]) == ''":                   "format: a number has more than 100 digits after the point",
	} {
		for name, env := range all {
			value, err := evaluate(compile(t, env, expression), variables)
			got := fmt.Sprint(value)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s: %.200s, not %s", name, expression, got, want)
			}
			var ended interpreter.EvalCancelledError
			if want == cancelled && !errors.As(err, &ended) {
				t.Errorf("%s: %s: %T does not end the evaluation", name, expression, err)
			}
		}
	}
}

// Usual calls have the same results as without bounds.
func TestUsualCallsAreNotBounded(t *testing.T) {
	long := strings.Repeat("a", 10_000)
	variables := map[string]any{"text": "12e4567", "long": long, "many": items(600), "pattern": "^[a-z]+$"}
	all := environments(t, variables)
	for expression, want := range map[string]any{
		"isQuantity('100m') && !isQuantity('x')":             true,
		"quantity('1.5Gi').isGreaterThan(quantity('1e3'))":   true,
		"text.size() == 7":                                   true,
		"sets.contains(many, many)":                          true,
		"sets.equivalent(many, many)":                        true,
		"sets.intersects(many, ['x'])":                       false,
		"many.distinct().size()":                             int64(600),
		"long.matches(pattern) && 'a'.matches('a')":          true,
		"'ab1'.find('[0-9]')":                                "1",
		"'a1b2'.findAll('[0-9]').join(',')":                  "1,2",
		"['a', 'b'].join()":                                  "ab",
		"'aXbX'.replace('X', 'yy')":                          "ayybyy",
		"'aXbX'.replace('X', 'yy', 1)":                       "ayybX",
		"'aXbX'.replace('', '-')":                            "-a-X-b-X-",
		"'version 1.1000 of 100%%.2000, %.3f'.format([1.5])": "version 1.1000 of 100%.2000, 1.500",
		"[1, 2].indexOf(2)":                                  int64(1),
		"'aéa'.lastIndexOf('a')":                             int64(2),
	} {
		for name, env := range all {
			if got, err := evaluate(compile(t, env, expression), variables); err != nil || got != want {
				t.Errorf("%s: %s: %v %v, not %v", name, expression, got, err, want)
			}
		}
	}
}

// The positions of texts are those that the library finds.
func TestPositionsOfTextsEqualTheLibrarys(t *testing.T) {
	bounded := Environment().StoredExpressionsEnv()
	library, err := cel.NewEnv(ext.Strings(ext.StringsVersion(2)))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]any{"text": nil, "part": nil, "at": nil}
	bounded, library = declare(t, bounded, names), declare(t, library, names)
	type call struct{ got, want cel.Program }
	calls := map[string]call{}
	for _, text := range []string{
		"text.indexOf(part)", "text.lastIndexOf(part)", "text.indexOf(part, at)", "text.lastIndexOf(part, at)",
	} {
		calls[text] = call{compile(t, bounded, text), compile(t, library, text)}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abé�")), 0, 12, -1)
		variables := map[string]any{
			"text": text.Draw(t, "text"), "part": text.Draw(t, "part"), "at": rapid.IntRange(-1, 14).Draw(t, "at"),
		}
		for text, call := range calls {
			got, gotErr := evaluate(call.got, variables)
			want, wantErr := evaluate(call.want, variables)
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("%s of %q: %v %v, not %v %v", text, variables, got, gotErr, want, wantErr)
			}
		}
	})
}

// Expressions that select devices have the same bounds.
func TestExpressionsAboutDevicesAreBounded(t *testing.T) {
	device, err := CompileDevice(`quantity(device.attributes["d"].text).isGreaterThan(quantity("1"))`)
	if err != nil {
		t.Fatal(err)
	}
	text := "1e-999999999"
	_, err = device.Selects("d", &resourcev1.Device{
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"text": {StringValue: &text}},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"c": {Value: resource.MustParse("1")}},
	})
	if err == nil || !strings.Contains(err.Error(), "quantities must have at most") {
		t.Errorf("%v", err)
	}
}
