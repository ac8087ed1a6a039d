package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Environment returns the environment that all expressions extend. The cost of its functions is bounded.
//
// The libraries that compile expressions of custom resources, tokens and device selectors take the environment from a
// cache that they share, and accept no other. Environment adds the bounds to the cached one. Every package that
// compiles expressions through such a library calls Environment before it.
var Environment = sync.OnceValue(func() *environment.EnvSet {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	bounded, err := boundedEnvironment(base)
	if err != nil {
		panic(err) // the functions are compiled in
	}
	*base = *bounded
	return base
})

func boundedEnvironment(base *environment.EnvSet) (*environment.EnvSet, error) {
	options, err := boundedFunctions(base.StoredExpressionsEnv())
	if err != nil {
		return nil, err
	}
	// Options introduced in version 1.0 apply to every compatibility version.
	return base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options,
		ProgramOptions: []cel.ProgramOption{cel.CustomDecoratorV2(boundMatches)},
	})
}

// boundedFunctions redefines functions of an environment, so that each call is passed to its bound first.
func boundedFunctions(env *cel.Env) ([]cel.EnvOption, error) {
	var options []cel.EnvOption
	for name, overloads := range bounds {
		function, ok := env.Functions()[name]
		if !ok {
			return nil, fmt.Errorf("expressions have no function %s", name)
		}
		implementations, err := function.Bindings()
		if err != nil {
			return nil, fmt.Errorf("read the implementations of %s: %w", name, err)
		}
		var redefined []cel.FunctionOpt
		for _, implementation := range implementations {
			if bound, ok := overloads[implementation.Operator]; ok {
				overload := overloadOf(function, implementation.Operator)
				redefined = append(redefined, redefine(overload, implementation, bound))
			}
		}
		if len(redefined) != len(overloads) {
			return nil, fmt.Errorf("function %s has %d of %d overloads", name, len(redefined), len(overloads))
		}
		options = append(options, cel.Function(name, redefined...))
	}
	return options, nil
}

func overloadOf(function *decls.FunctionDecl, id string) *decls.OverloadDecl {
	for _, overload := range function.OverloadDecls() {
		if overload.ID() == id {
			return overload
		}
	}
	return nil
}

// redefine returns an overload that calls its implementation only if the bound returns nil.
func redefine(overload *decls.OverloadDecl, to *functions.Overload, bound bound) cel.FunctionOpt {
	call := func(args ...ref.Val) ref.Val {
		if result := bound(args); result != nil {
			return result
		}
		switch {
		case len(args) == 1 && to.Unary != nil:
			return to.Unary(args[0])
		case len(args) == 2 && to.Binary != nil:
			return to.Binary(args[0], args[1])
		}
		return to.Function(args...)
	}
	var binding cel.OverloadOpt
	switch len(overload.ArgTypes()) {
	case 1:
		binding = cel.UnaryBinding(func(arg ref.Val) ref.Val { return call(arg) })
	case 2:
		binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return call(a, b) })
	default:
		binding = cel.FunctionBinding(call)
	}
	if overload.IsMemberFunction() {
		return cel.MemberOverload(overload.ID(), overload.ArgTypes(), overload.ResultType(), binding)
	}
	return cel.Overload(overload.ID(), overload.ArgTypes(), overload.ResultType(), binding)
}
