package oracle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// This file covers only extended resources that a DeviceClass represents. Classes select devices by driver, or all
// devices.

// isExtendedResource reports whether devices can represent a resource.
func isExtendedResource(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) ||
		strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}

// classFor returns the class for an extended resource: the class whose own name with a prefix is the resource, or a
// class that sets this extended resource name. Of several classes with that name, it is the one created last, and of
// those the first by name.
func (w *World) classFor(name corev1.ResourceName) *resourcev1.DeviceClass {
	var best *resourcev1.DeviceClass
	for _, c := range w.DeviceClasses {
		if resourcev1.ResourceDeviceClassPrefix+c.Name == string(name) {
			return c
		}
		if c.Spec.ExtendedResourceName == nil || *c.Spec.ExtendedResourceName != string(name) {
			continue
		}
		if best == nil || c.CreationTimestamp.After(best.CreationTimestamp.Time) ||
			c.CreationTimestamp.Equal(&best.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	return best
}

// providingClass returns the class that provides an extended resource of a node. It is nil if the node has the resource
// itself, or there is no class for it.
func (w *World) providingClass(node *corev1.Node, name corev1.ResourceName) *resourcev1.DeviceClass {
	if q := node.Status.Allocatable[name]; !isExtendedResource(name) || !q.IsZero() {
		return nil
	}
	return w.classFor(name)
}

// driverOf returns the driver whose devices a class selects. It is empty if the class selects all devices.
func driverOf(c *resourcev1.DeviceClass) string {
	driver := ""
	for _, s := range c.Spec.Selectors {
		if _, err := fmt.Sscanf(s.CEL.Expression, "device.driver == %q", &driver); err != nil {
			panic("a class that selects by more than the driver: " + s.CEL.Expression)
		}
	}
	return driver
}

// devices returns how many devices of a driver, or of all drivers, a node can use, and how many of these are allocated
// to claims.
func (w *World) devices(node *corev1.Node, driver string) (all, taken int64) {
	for _, s := range w.Slices {
		if driver != "" && s.Spec.Driver != driver || s.Spec.NodeName != nil && *s.Spec.NodeName != node.Name {
			continue
		}
		for _, d := range s.Spec.Devices {
			all++
			if slices.ContainsFunc(w.DeviceClaims, func(c *resourcev1.ResourceClaim) bool {
				return slices.ContainsFunc(
					c.Status.Allocation.Devices.Results,
					func(r resourcev1.DeviceRequestAllocationResult) bool {
						return r.Driver == s.Spec.Driver && r.Pool == s.Spec.Pool.Name && r.Device == d.Name
					},
				)
			}) {
				taken++
			}
		}
	}
	return all, taken
}

// dynamicResources refuses nodes with too few free devices for the extended resources that the nodes do not have
// themselves.
func dynamicResources(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	wants, any, isFound := map[string]int64{}, false, true
	for name, n := range podRequests(pod, nil) {
		if !isExtendedResource(name) || n == 0 {
			continue
		}
		any = any || c.classFor(name) != nil
		if class := c.providingClass(node, name); class != nil {
			wants[driverOf(class)] += n
		} else if _, has := node.Status.Allocatable[name]; !has {
			isFound = false
		}
	}
	if !any {
		return nil
	}
	if !isFound { // the filter by resources was configured to ignore the resource
		return newUnresolvable("cannot fit resource")
	}
	var total int64
	for driver, n := range wants {
		total += n
		if all, taken := c.devices(node, driver); driver != "" && n > all-taken {
			return newResolvable("cannot allocate all claims")
		}
	}
	if all, taken := c.devices(node, ""); wants[""] > 0 && total > all-taken {
		return newResolvable("cannot allocate all claims")
	}
	return nil
}
