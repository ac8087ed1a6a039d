package expression

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// devices is the environment of expressions that select devices: the device is known when
// it is asked about, and so are its attributes' types.
var devices = sync.OnceValues(func() (*environment.EnvSet, error) {
	return base().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 31),
		EnvOptions:        []cel.EnvOption{cel.Variable("device", cel.DynType)},
	})
})

// CheckDevice returns what is wrong with an expression that selects devices.
func CheckDevice(text string) error {
	set, err := devices()
	if err != nil {
		return fmt.Errorf("prepare expressions about devices: %w", err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		return fmt.Errorf("prepare expressions about devices: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return fmt.Errorf("compilation failed: %w", issues.Err())
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return errors.New("must evaluate to bool or the unknown type, not " + t.String())
	}
	return nil
}
