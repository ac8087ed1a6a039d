package policystatus

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// fakeKinds provides the kinds of the tests: sizes have a number as spec.size, names have a string.
type fakeKinds struct{ meta.RESTMapper }

func (fakeKinds) Reset() {}

func (fakeKinds) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	object := func(fields map[string]spec.Schema) *spec.Schema {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Properties: fields}}
	}
	switch kind.Kind {
	case "Size":
		return object(
			map[string]spec.Schema{"spec": *object(map[string]spec.Schema{"size": *spec.Int64Property()})},
		), nil
	case "Name":
		return object(
			map[string]spec.Schema{"spec": *object(map[string]spec.Schema{"size": *spec.StringProperty()})},
		), nil
	}
	return nil, resolver.ErrSchemaNotFound
}

func newVariable(text string) []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{{Name: "n", Expression: text}}
}

func TestExpressionsAreCheckedAgainstEveryKindThatAPolicyNames(t *testing.T) {
	version := schema.GroupVersion{Group: "test", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Size", "Name", "Unknown"} {
		mapper.Add(version.WithKind(kind), meta.RESTScopeNamespace)
	}
	c := checker{schemas: fakeKinds{}, kinds: fakeKinds{mapper}, log: slog.New(slog.DiscardHandler)}
	for name, test := range map[string]struct {
		resources  []string
		groups     []string
		param      string
		variables  []admissionregistrationv1.Variable
		expression string
		message    string
		want       string // part of the warning; empty means that there is none
	}{
		"fits":             {expression: "object.spec.size > 1"},
		"an unknown field": {expression: "object.spec.length > 1", want: "undefined field 'length'"},
		"another type":     {expression: "object.spec.size == 'x'", want: "test/v1, Kind=Size: ERROR"},
		"the old object":   {expression: "oldObject.spec.size == 'x'", want: "no matching overload"},
		"of another kind":  {resources: []string{"names"}, expression: "object.spec.size == 'x'"},
		"of both": {resources: []string{"sizes", "names"}, expression: "object.spec.size > 1",
			want: "Kind=Name"},
		"a wildcard":               {resources: []string{"*"}, expression: "object.spec.length > 1"},
		"a wildcard for the group": {groups: []string{"*"}, expression: "object.spec.length > 1"},
		"a subresource":            {resources: []string{"sizes/status"}, expression: "object.spec.length > 1"},
		"a kind without a schema":  {resources: []string{"unknowns"}, expression: "object.spec.length > 1"},
		"a resource that is not":   {resources: []string{"nothings"}, expression: "object.spec.length > 1"},
		"a message":                {expression: "true", message: "object.spec.length", want: "undefined field"},
		"the request":              {expression: "request.name == 1", want: "no matching overload"},
		"the namespace":            {expression: "namespaceObject.metadata.name == 'x'"},
		"the authorizer":           {expression: "authorizer.group('').resource('pods').check('get').allowed()"},
		"no parameter":             {expression: "params.spec.size == 1", want: "undeclared reference"},
		"a parameter":              {param: "Name", expression: "params.spec.size == 'x'"},
		"a parameter's type": {param: "Name", expression: "params.spec.size == 1",
			want: "no matching overload"},
		"a parameter, any": {param: "Unknown", expression: "params.anything == 1"},
		"a variable": {variables: newVariable("object.spec.size"), expression: "variables.n == 'x'",
			want: "no matching overload"},
		"a variable that does not fit": {variables: newVariable("object.spec.length"),
			expression: "variables.n == 'x'"},
	} {
		if test.resources == nil {
			test.resources = []string{"sizes"}
		}
		if test.groups == nil {
			test.groups = []string{"test"}
		}
		field := "expression"
		if test.message != "" {
			field = "messageExpression"
		}
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		rules := []admissionregistrationv1.NamedRuleWithOperations{{}}
		rules[0].APIGroups, rules[0].APIVersions, rules[0].Resources = test.groups, []string{"v1"}, test.resources
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: rules}
		p.Spec.Validations = []admissionregistrationv1.Validation{
			{Expression: test.expression, MessageExpression: test.message},
		}
		p.Spec.Variables = test.variables
		if test.param != "" {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "test/v1", Kind: test.param}
		}
		got, err := c.warnings(p)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want == "" && len(got) == 0:
		case len(got) != 1,
			got[0].FieldRef != "spec.validations[0]."+field,
			!strings.Contains(got[0].Warning, test.want):
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// countingMapper knows no kind and counts the lookups.
type countingMapper struct {
	meta.ResettableRESTMapper
	lookups int
}

func (m *countingMapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	m.lookups++
	return nil, &meta.NoResourceMatchError{PartialResource: r}
}

func (m *countingMapper) Reset() {}

// TestLookupsForARuleAreLimited checks a rule of a few kilobytes that names eight million resources.
func TestLookupsForARuleAreLimited(t *testing.T) {
	var list []string
	for i := range 200 {
		list = append(list, fmt.Sprintf("v%d", i))
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Rule: admissionregistrationv1.Rule{APIGroups: list, APIVersions: list, Resources: list},
					}}},
			}},
	}
	mapper := &countingMapper{}
	c := checker{schemas: fakeKinds{}, kinds: mapper, log: slog.New(slog.DiscardHandler)}
	if kinds := c.kindsOf(policy); len(kinds) != 0 || mapper.lookups > maxLookups+1 {
		t.Errorf("%d kinds after %d lookups", len(kinds), mapper.lookups)
	}
}
