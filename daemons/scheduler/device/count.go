package device

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Counter counts the devices of one class.
type Counter struct{ option *option }

// NewCounter returns a counter for a class. It returns an error if an expression of the class does not compile.
func NewCounter(class *resourcev1.DeviceClass, compile Compiler) (*Counter, error) {
	o, err := newOption(&resourcev1.ResourceClaim{}, "count", &resourcev1.ExactDeviceRequest{
		DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}, func(string) *resourcev1.DeviceClass { return class }, compile)
	if err != nil {
		return nil, err
	}
	return &Counter{o}, nil
}

// CountOn returns the number of devices of the class that a node can use, and how many of them are allocated. Both are
// 0 if an expression of the class fails for a device.
func (c *Counter) CountOn(n *corev1.Node, catalog *Catalog, use *Use) (all, taken int64) {
	for _, p := range catalog.poolsFor(n.Name) {
		devices, _ := p.devicesFor(n)
		for _, e := range devices {
			yes, err := c.option.isSatisfiedBy(e)
			if err != nil {
				return 0, 0
			}
			if !yes {
				continue
			}
			if all++; use.isTaken(e.DeviceID) {
				taken++
			}
		}
	}
	return all, taken
}
