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

// ID identifies a device.
type ID struct{ Driver, Pool, Device string }

// entry is a device of a slice.
type entry struct {
	ID
	*resourcev1.Device
	slice   *slice
	reach   *reach
	lacking string // name of an unsupported feature; empty if there is none
	taints  []resourcev1.DeviceTaint

	selected map[string]verdict // by expression: its result for this device
}

type verdict struct {
	yes bool
	err error
}

// slice is a ResourceSlice prepared for the search.
type slice struct {
	*resourcev1.ResourceSlice
	reach   *reach // nil if each device has its own
	devices []*entry
	groups  bool // some devices have compatibility groups
}

// reach holds which nodes can use a device.
type reach struct {
	node     string // the only node; empty if it is not limited by name
	selector *corev1.NodeSelector
	parsed   *nodeaffinity.NodeSelector
	all      bool
}

func newReach(name *string, selector *corev1.NodeSelector, all *bool) *reach {
	r := &reach{all: all != nil && *all, selector: selector}
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

func (r *reach) from(n *corev1.Node) bool {
	switch {
	case r.node != "":
		return r.node == n.Name
	case r.all:
		return true
	}
	return r.parsed != nil && r.parsed.Match(n)
}

func newSlice(o *resourcev1.ResourceSlice) *slice {
	s := &slice{ResourceSlice: o}
	if !set(o.Spec.PerDeviceNodeSelection) {
		s.reach = newReach(o.Spec.NodeName, o.Spec.NodeSelector, o.Spec.AllNodes)
	}
	for i := range o.Spec.Devices {
		d := &o.Spec.Devices[i]
		e := &entry{
			ID:      ID{o.Spec.Driver, o.Spec.Pool.Name, d.Name},
			Device:  d,
			slice:   s,
			reach:   s.reach,
			lacking: lacking(o, d),
		}
		if e.reach == nil {
			e.reach = newReach(d.NodeName, d.NodeSelector, d.AllNodes)
		}
		s.groups = s.groups ||
			slices.ContainsFunc(
				d.ConsumesCounters,
				func(c resourcev1.DeviceCounterConsumption) bool { return len(c.CompatibilityGroups) > 0 },
			)
		s.devices = append(s.devices, e)
	}
	return s
}

// lacking returns the name of an unsupported feature of a device, or "". None of these features is stable.
func lacking(s *resourcev1.ResourceSlice, d *resourcev1.Device) string {
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

// selector returns the nodes on which devices that were allocated on node can be used. nil means all nodes.
func selector(devices []*entry, node string) *corev1.NodeSelector {
	var term corev1.NodeSelectorTerm
	add := func(to *[]corev1.NodeSelectorRequirement, more []corev1.NodeSelectorRequirement) {
		for _, r := range more {
			if !slices.ContainsFunc(*to, func(have corev1.NodeSelectorRequirement) bool {
				return have.Key == r.Key && have.Operator == r.Operator && slices.Equal(have.Values, r.Values)
			}) {
				*to = append(*to, r)
			}
		}
	}
	for _, e := range devices {
		if e.reach.node != "" || set(e.BindsToNode) {
			return &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}
		}
		if e.reach.selector != nil {
			for _, t := range e.reach.selector.NodeSelectorTerms {
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

func set(b *bool) bool { return b != nil && *b }
