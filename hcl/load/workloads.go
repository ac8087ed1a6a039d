package load

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// workloadBlocks are the blocks of a configuration with Options.Root.
var workloadBlocks = []string{"workload", "object", "manifests", "storage_class", "git_source", "helm_release",
	"kustomization", "variable", "locals", "module", "data", "output", "check"}

// refusedFunctions are the functions that a configuration with Options.Root cannot call, with the reason.
var refusedFunctions = map[string]string{
	"timestamp": "its result differs each time", "plantimestamp": "its result differs each time",
	"uuid": "its result differs each time", "bcrypt": "its result differs each time",
	"pathexpand": "there is no home directory", "abspath": "paths begin at the root of the repository",
	"rsadecrypt": "private keys do not belong into a repository; encrypt files with SOPS",
}

// refusedFunc returns a function that is an error.
func refusedFunc(name, reason string) function.Function {
	return function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "args", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
			AllowDynamicType: true, AllowMarked: true},
		Type: func([]cty.Value) (cty.Type, error) {
			return cty.NilType, fmt.Errorf("%s is not available to objects of a Git repository: %s", name, reason)
		},
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.NilVal, nil },
	})
}
