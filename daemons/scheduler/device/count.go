package device

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Counter counts the devices of one class.
type Counter struct{ any *option }

// NewCounter reads a class. The error is an expression that does not compile.
func NewCounter(class *resourcev1.DeviceClass, compile Compiler) (*Counter, error) {
	o, err := newOption(&resourcev1.ResourceClaim{}, "count", &resourcev1.ExactDeviceRequest{
		DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}, func(string) *resourcev1.DeviceClass { return class }, compile)
	if err != nil {
		return nil, err
	}
	return &Counter{o}, nil
}

// On is how many devices of the class can be reached from a node, and how many of these are allocated. A class that
// cannot be asked about a device has none.
func (c *Counter) On(n *corev1.Node, catalog *Catalog, use *Use) (all, taken int64) {
	for _, p := range catalog.near(n.Name) {
		devices, _ := p.reachable(n)
		for _, e := range devices {
			yes, err := c.any.selects(e)
			if err != nil {
				return 0, 0
			}
			if !yes {
				continue
			}
			if all++; use.taken(e.ID) {
				taken++
			}
		}
	}
	return all, taken
}
