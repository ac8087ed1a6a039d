package policystatus

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"clusterctl/daemons/kinds/expression"
)

// checker checks the expressions of policies against the schemas of the kinds that the policies name.
// k8s.io/apiserver/pkg/admission/plugin/policy/validating does the same, but imports all of client-go's fakes.
type checker struct {
	schemas schemaResolver
	kinds   meta.ResettableRESTMapper
	log     *slog.Logger
}

// schemaResolver returns the schema of a kind, with all references replaced. The error is errSchemaNotFound for a
// kind that is not served.
type schemaResolver interface {
	ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error)
}

var errSchemaNotFound = errors.New("schema not found")

// warnings returns type errors in a policy's expressions, in the form of its status. Kinds whose schema is unknown are
// left out.
func (c *checker) warnings(
	policy *admissionregistrationv1.ValidatingAdmissionPolicy,
) ([]admissionregistrationv1.ExpressionWarning, error) {
	var params *variableType
	if p := policy.Spec.ParamKind; p != nil {
		params = &variableType{}
		params.DeclType, _ = c.typeOf(schema.FromAPIVersionAndKind(p.APIVersion, p.Kind), "params")
	}
	var scopes []*scope
	for _, kind := range c.kindsOf(policy) {
		object, ok := c.typeOf(kind, "object")
		if !ok {
			continue
		}
		s, err := newScope(kind, variableType{object}, params, policy.Spec.Variables)
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, s)
	}
	var list []admissionregistrationv1.ExpressionWarning
	check := func(at *field.Path, text string) {
		var found []string
		for _, s := range scopes {
			if issues := s.issues(text); issues != "" {
				found = append(found, issues)
			}
		}
		if len(found) > 0 {
			warning := strings.Join(found, "\n")
			list = append(list, admissionregistrationv1.ExpressionWarning{FieldRef: at.String(), Warning: warning})
		}
	}
	for i, v := range policy.Spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		check(at.Child("expression"), v.Expression)
		if v.MessageExpression != "" {
			check(at.Child("messageExpression"), v.MessageExpression)
		}
	}
	return list, nil
}

// Bounds of a check: a rule names the product of its groups, versions and resources.
const (
	maxKinds   = 10   // kinds that a policy is checked against
	maxLookups = 1000 // resources that are looked up for a policy
)

// kindsOf returns the kinds that a policy names, sorted. A rule with a wildcard names none.
func (c *checker) kindsOf(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []schema.GroupVersionKind {
	if policy.Spec.MatchConstraints == nil {
		return nil
	}
	found := map[schema.GroupVersionKind]bool{}
	looks := 0
	renewed := false // the mapper is refreshed at most once per policy
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		for r := range resourcesOf(rule.Rule) {
			if looks++; looks > maxLookups || len(found) >= maxKinds {
				break
			}
			kinds, err := c.kinds.KindsFor(r)
			if err != nil && !renewed {
				renewed = true
				c.kinds.Reset()
				kinds, err = c.kinds.KindsFor(r)
			}
			if err != nil {
				continue
			}
			for _, kind := range kinds {
				if len(found) < maxKinds {
					found[kind] = true
				}
			}
		}
	}
	list := make([]schema.GroupVersionKind, 0, len(found))
	for kind := range found {
		list = append(list, kind)
	}
	slices.SortFunc(list, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// resourcesOf yields the resources that a rule names, in order.
func resourcesOf(rule admissionregistrationv1.Rule) iter.Seq[schema.GroupVersionResource] {
	return func(yield func(schema.GroupVersionResource) bool) {
		if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIVersions, "*") {
			return
		}
		versions := slices.Sorted(slices.Values(rule.APIVersions))
		resources := slices.Sorted(slices.Values(rule.Resources))
		resources = slices.DeleteFunc(resources, func(r string) bool { return strings.ContainsAny(r, "*/") })
		for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
			for _, version := range versions {
				for _, resource := range resources {
					if !yield(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}) {
						return
					}
				}
			}
		}
	}
}

// variableType is the type of a variable. A nil DeclType means any type.
type variableType struct{ *apiservercel.DeclType }

// typeOf returns the type of a kind. isKnown reports whether its schema is known.
func (c *checker) typeOf(kind schema.GroupVersionKind, name string) (t *apiservercel.DeclType, isKnown bool) {
	s, err := c.schemas.ResolveSchema(kind)
	if err != nil {
		if !errors.Is(err, errSchemaNotFound) {
			c.log.Info("a kind's schema cannot be read: policies are not checked against it", "kind", kind, "err", err)
		}
		return nil, false
	}
	if t = common.SchemaDeclType(&openapi.Schema{Schema: s}, true); t == nil {
		return nil, true
	}
	return t.MaybeAssignTypeName(name + kind.Kind), true
}

// scope compiles expressions whose object is of one kind.
type scope struct {
	kind     schema.GroupVersionKind
	compiler *plugincel.CompositedCompiler
}

// newScope returns the scope of a kind. params is nil if the policy has none.
func newScope(
	kind schema.GroupVersionKind, object variableType, params *variableType,
	variables []admissionregistrationv1.Variable,
) (*scope, error) {
	types := []*apiservercel.DeclType{plugincel.BuildNamespaceType(), plugincel.BuildRequestType()}
	names := []cel.EnvOption{
		cel.Variable(plugincel.NamespaceVarName, types[0].CelType()),
		cel.Variable(plugincel.RequestVarName, types[1].CelType()),
		cel.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
	}
	declare := func(t variableType, variables ...string) {
		of := cel.DynType
		if t.DeclType != nil {
			types, of = append(types, t.DeclType), t.CelType()
		}
		for _, name := range variables {
			names = append(names, cel.Variable(name, of))
		}
	}
	declare(object, plugincel.ObjectVarName, plugincel.OldObjectVarName)
	if params != nil {
		declare(*params, plugincel.ParamsVarName)
	}
	// Options introduced in version 1.0 apply to every compatibility version.
	env, err := expression.Environment().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: names, DeclTypes: types,
	})
	if err != nil {
		return nil, fmt.Errorf("declare the types of %s: %w", kind, err)
	}
	s := &scope{kind: kind}
	if s.compiler, err = plugincel.NewCompositedCompilerForTypeChecking(env); err != nil {
		return nil, fmt.Errorf("declare the variables of policies: %w", err)
	}
	s.compiler.Compiler = s
	for _, v := range variables { // a variable that does not compile has any type
		text := &expression.Text{Name: v.Name, Expression: v.Expression}
		s.compiler.CompileAndStoreVariable(text, plugincel.OptionalVariableDeclarations{},
			environment.StoredExpressions)
	}
	return s, nil
}

// issues returns the problems of an expression, or "".
func (s *scope) issues(text string) string {
	accessor := &expression.Text{Expression: text}
	r := s.CompileCELExpression(accessor, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	if r.Error == nil {
		return ""
	}
	if r.Error.Type != apiservercel.ErrorTypeInvalid {
		return fmt.Sprintf("%v: type checking error: %v\n", s.kind, r.Error)
	}
	return fmt.Sprintf("%v: %s\n", s.kind, r.Error)
}

// CompileCELExpression checks an expression without creating a program. The environment contains the variables.
func (s *scope) CompileCELExpression(
	text plugincel.ExpressionAccessor, _ plugincel.OptionalVariableDeclarations, mode environment.Type,
) plugincel.CompilationResult {
	failed := func(kind apiservercel.ErrorType, detail string) plugincel.CompilationResult {
		return plugincel.CompilationResult{
			Error:              &apiservercel.Error{Type: kind, Detail: detail},
			ExpressionAccessor: text,
		}
	}
	env, err := s.compiler.Env(mode)
	if err != nil {
		return failed(apiservercel.ErrorTypeInternal, "fail to build env: "+err.Error())
	}
	ast, issues := env.Compile(text.GetExpression())
	if issues != nil {
		return failed(apiservercel.ErrorTypeInvalid, issues.String())
	}
	return plugincel.CompilationResult{OutputType: ast.OutputType()}
}
