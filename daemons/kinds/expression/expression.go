// Package expression compiles the CEL expressions in webhook configurations and admission policies, and checks their
// variables and types. The API server evaluates them.
package expression

import (
	"sync"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Text is an expression with its permitted types.
type Text struct {
	Name       string // of a condition or variable; may be empty
	Expression string
	Types      []*cel.Type
}

// GetExpression implements plugincel.ExpressionAccessor.
func (t *Text) GetExpression() string { return t.Expression }

// ReturnTypes implements plugincel.ExpressionAccessor.
func (t *Text) ReturnTypes() []*cel.Type { return t.Types }

// GetName implements plugincel.NamedExpressionAccessor.
func (t *Text) GetName() string { return t.Name }

// Types that expressions may have.
var (
	Boolean      = []*cel.Type{cel.BoolType}
	String       = []*cel.Type{cel.StringType}
	StringOrNull = []*cel.Type{cel.StringType, cel.NullType}
	AnyType      = []*cel.Type{cel.AnyType, cel.DynType}
)

// plainCompiler is created on first use, so that clusters without expressions do not pay for it.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(Environment()) })

// conditionVariables holds the optional variables of match conditions.
var conditionVariables = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// CheckCondition returns the error of a webhook's match condition.
func CheckCondition(text string) error {
	r := plainCompiler().CompileCELExpression(&Text{Expression: text, Types: Boolean}, conditionVariables,
		environment.NewExpressions)
	if r.Error != nil {
		return r.Error
	}
	return nil
}

// Conditions compiles the match conditions of a webhook. It returns nil if there are none.
func Conditions(list []admissionregistrationv1.MatchCondition) plugincel.ConditionEvaluator {
	if len(list) == 0 {
		return nil
	}
	compiled := make([]plugincel.CompilationResult, len(list))
	for i, c := range list {
		compiled[i] = plainCompiler().CompileCELExpression(&Text{c.Name, c.Expression, Boolean}, conditionVariables,
			environment.StoredExpressions)
	}
	return plugincel.NewCondition(compiled)
}

// Scope compiles the expressions of one policy, which share its variables. An expression can use the variables that
// were declared before it.
type Scope struct {
	*plugincel.CompositedCompiler
	declared plugincel.OptionalVariableDeclarations
	mode     environment.Type
}

// NewScope returns the scope of a policy. fresh means that the policy is being written. Stored expressions may use
// features that fresh ones may not use yet, so that servers can be rolled back.
func NewScope(params, patches, fresh bool) (*Scope, error) {
	c, err := plugincel.NewCompositedCompiler(Environment())
	if err != nil {
		return nil, err
	}
	s := &Scope{
		CompositedCompiler: c,
		declared: plugincel.OptionalVariableDeclarations{
			HasParams:     params,
			HasAuthorizer: true,
			HasPatchTypes: patches,
		},
	}
	s.mode = environment.StoredExpressions
	if fresh {
		s.mode = environment.NewExpressions
	}
	return s, nil
}

// Declare adds a variable. It returns an error if the expression is invalid.
func (s *Scope) Declare(name, text string) error {
	d := s.declared
	d.HasPatchTypes = false
	if r := s.CompileAndStoreVariable(&Text{name, text, AnyType}, d, s.mode); r.Error != nil {
		return r.Error
	}
	return nil
}

// Check returns the error of an expression that must have one of types.
func (s *Scope) Check(text string, types []*cel.Type, authorizer bool) error {
	d := s.declared
	d.HasAuthorizer, d.HasPatchTypes = authorizer, false
	return s.check(&Text{Expression: text, Types: types}, d)
}

// CheckPatch returns the error of an expression that creates a patch.
func (s *Scope) CheckPatch(accessor plugincel.ExpressionAccessor) error {
	return s.check(accessor, s.declared)
}

func (s *Scope) check(accessor plugincel.ExpressionAccessor, d plugincel.OptionalVariableDeclarations) error {
	if r := s.CompileCELExpression(accessor, d, s.mode); r.Error != nil {
		return r.Error
	}
	return nil
}

// Evaluator compiles expressions that are evaluated in order. Empty expressions yield empty results.
func (s *Scope) Evaluator(texts []*Text, authorizer bool) plugincel.ConditionEvaluator {
	d := s.declared
	d.HasAuthorizer, d.HasPatchTypes = authorizer, false
	list := make([]plugincel.ExpressionAccessor, len(texts))
	for i, t := range texts {
		if t != nil && t.Expression != "" {
			list[i] = t
		}
	}
	return s.CompileCondition(list, d, s.mode)
}

// Mutation compiles an expression that creates a patch.
func (s *Scope) Mutation(accessor plugincel.ExpressionAccessor) plugincel.MutatingEvaluator {
	return s.CompileMutatingEvaluator(accessor, s.declared, s.mode)
}
