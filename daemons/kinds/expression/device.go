package expression

import (
	"context"
	"errors"
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	devicecel "k8s.io/dynamic-resource-allocation/cel"
)

// deviceFeatures lists the features of expressions about devices: all that are stable or enabled by default.
var deviceFeatures = devicecel.Features{EnableConsumableCapacity: true}

// deviceCompiler returns the compiler of expressions about devices. It takes its environment from the library's cache.
var deviceCompiler = sync.OnceValue(func() interface {
	CompileCELExpression(text string, options devicecel.Options) devicecel.CompilationResult
} {
	Environment()
	return devicecel.GetCompiler(deviceFeatures)
})

// CheckDevice returns an error if an expression that selects devices does not compile, is not boolean, or may exceed
// the cost limit.
func CheckDevice(text string) error {
	fresh := environment.NewExpressions
	result := deviceCompiler().CompileCELExpression(text, devicecel.Options{EnvType: &fresh})
	switch {
	case result.Error != nil:
		return errors.New(result.Error.Detail)
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return errors.New("too complex, exceeds cost limit")
	}
	return nil
}

// Device is an expression that selects devices.
type Device struct{ compiled devicecel.CompilationResult }

// CompileDevice compiles a stored expression. The documented cost limit bounds its evaluation.
func CompileDevice(text string) (*Device, error) {
	result := deviceCompiler().
		CompileCELExpression(text, devicecel.Options{DisableCostEstimation: true})
	if result.Error != nil {
		return nil, fmt.Errorf("CEL compile error: %w", result.Error)
	}
	return &Device{result}, nil
}

// Selects reports whether the expression selects a driver's device.
func (d *Device) Selects(driver string, device *resourcev1.Device) (bool, error) {
	selected, _, err := d.compiled.DeviceMatches(context.Background(), devicecel.Device{
		Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes,
		Capacity: device.Capacity,
	})
	if err != nil {
		return false, fmt.Errorf("CEL runtime error: %w", err)
	}
	return selected, nil
}
