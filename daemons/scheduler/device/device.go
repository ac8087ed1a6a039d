// Package device decides which devices a claim gets. It knows the published devices (Catalog) and their allocations
// (Use), and selects devices that a node can use for a pod's claims. It makes no requests. The scheduler decides which
// claims to allocate and when, and writes the result.
package device

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// DeviceID identifies a device.
type DeviceID struct{ Driver, Pool, Device string }

// entry is a device of a slice.
type entry struct {
	DeviceID
	*resourcev1.Device
	slice              *slice
	access             *nodeAccess
	unsupportedFeature string // name of an unsupported feature; empty if there is none
	taints             []resourcev1.DeviceTaint

	expressionResults map[string]expressionResult // by expression: its result for this device
}

type expressionResult struct {
	matches bool
	err     error
}

// slice is a ResourceSlice prepared for the search.
type slice struct {
	*resourcev1.ResourceSlice
	access    *nodeAccess // nil if each device has its own
	devices   []*entry
	hasGroups bool // some devices have compatibility groups
}

// nodeAccess holds which nodes can use a device.
type nodeAccess struct {
	node     string // the only node; empty if it is not limited by name
	selector *corev1.NodeSelector
	parsed   *nodeaffinity.NodeSelector
	allNodes bool
}

func newNodeAccess(name *string, selector *corev1.NodeSelector, all *bool) *nodeAccess {
	r := &nodeAccess{allNodes: all != nil && *all, selector: selector}
	if name != nil {
		r.node = *name
	}
	if selector != nil {
		if parsed, err := nodeaffinity.NewNodeSelector(selector); err == nil {
			r.parsed = parsed // an invalid selector selects nothing
		}
	}
	return r
}

func (r *nodeAccess) includes(n *corev1.Node) bool {
	switch {
	case r.node != "":
		return r.node == n.Name
	case r.allNodes:
		return true
	}
	return r.parsed != nil && r.parsed.Match(n)
}

func newSlice(o *resourcev1.ResourceSlice) *slice {
	s := &slice{ResourceSlice: o}
	if !isTrue(o.Spec.PerDeviceNodeSelection) {
		s.access = newNodeAccess(o.Spec.NodeName, o.Spec.NodeSelector, o.Spec.AllNodes)
	}
	for i := range o.Spec.Devices {
		d := &o.Spec.Devices[i]
		e := &entry{
			DeviceID:           DeviceID{o.Spec.Driver, o.Spec.Pool.Name, d.Name},
			Device:             d,
			slice:              s,
			access:             s.access,
			unsupportedFeature: findUnsupportedFeature(o, d),
		}
		if e.access == nil {
			e.access = newNodeAccess(d.NodeName, d.NodeSelector, d.AllNodes)
		}
		s.hasGroups = s.hasGroups ||
			slices.ContainsFunc(d.ConsumesCounters,
				func(c resourcev1.DeviceCounterConsumption) bool { return len(c.CompatibilityGroups) > 0 })
		s.devices = append(s.devices, e)
	}
	return s
}

// findUnsupportedFeature returns the name of an unsupported feature of a device, or "". None of these features is
// stable.
func findUnsupportedFeature(s *resourcev1.ResourceSlice, d *resourcev1.Device) string {
	switch {
	case len(d.BindingConditions) > 0:
		return "binding conditions"
	case len(d.NodeAllocatableResources) > 0:
		return "node allocatable resources"
	case len(s.Spec.SkipNodeOperations) > 0:
		return "skipped node operations"
	}
	for _, a := range d.Attributes {
		if a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil {
			return "attributes that are lists"
		}
	}
	return ""
}

// usableNodes returns the nodes on which devices that were allocated on node can be used. nil means all nodes.
func usableNodes(devices []*entry, node string) *corev1.NodeSelector {
	var term corev1.NodeSelectorTerm
	add := func(to *[]corev1.NodeSelectorRequirement, more []corev1.NodeSelectorRequirement) {
		for _, r := range more {
			if !slices.ContainsFunc(*to, func(current corev1.NodeSelectorRequirement) bool {
				return current.Key == r.Key && current.Operator == r.Operator && slices.Equal(current.Values, r.Values)
			}) {
				*to = append(*to, r)
			}
		}
	}
	for _, e := range devices {
		if e.access.node != "" || isTrue(e.BindsToNode) {
			return &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}
		}
		if e.access.selector != nil {
			for _, t := range e.access.selector.NodeSelectorTerms {
				add(&term.MatchFields, t.MatchFields)
				add(&term.MatchExpressions, t.MatchExpressions)
			}
		}
	}
	if len(term.MatchFields)+len(term.MatchExpressions) == 0 {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

func isTrue(b *bool) bool { return b != nil && *b }
