package expression

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	devicecel "k8s.io/dynamic-resource-allocation/cel"
)

// deviceFeatures are what expressions about devices may refer to: all that is stable or on by default.
var deviceFeatures = devicecel.Features{EnableConsumableCapacity: true}

// CheckDevice returns what is wrong with an expression that selects devices: it does not compile, comes to no boolean,
// or could cost more than is allowed.
func CheckDevice(text string) error {
	fresh := environment.NewExpressions
	result := devicecel.GetCompiler(deviceFeatures).CompileCELExpression(text, devicecel.Options{EnvType: &fresh})
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

// CompileDevice compiles an expression as it is stored. Evaluating it is bounded by the documented cost.
func CompileDevice(text string) (*Device, error) {
	result := devicecel.GetCompiler(deviceFeatures).
		CompileCELExpression(text, devicecel.Options{DisableCostEstimation: true})
	if result.Error != nil {
		return nil, fmt.Errorf("CEL compile error: %w", result.Error)
	}
	return &Device{result}, nil
}

// Selects reports whether a driver's device is selected.
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
