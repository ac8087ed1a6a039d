package device

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Allocation is the result for one claim. Shares of devices have no IDs yet.
type Allocation struct {
	Claim  *resourcev1.ResourceClaim
	Result *resourcev1.AllocationResult
	Shares []int // indexes of the results that need a share ID
}

// SetShareIDs sets the share IDs.
func (a *Allocation) SetShareIDs(name func() types.UID) {
	for _, i := range a.Shares {
		a.Result.Devices.Results[i].ShareID = ptr.To(name())
	}
}

// results converts the picked devices to allocations.
func (s *search) results() []*Allocation {
	var out []*Allocation
	for i, a := range s.claims {
		one := &Allocation{Claim: a.claim, Result: &resourcev1.AllocationResult{}}
		var devices []*entry
		for _, p := range s.picked[i] {
			devices = append(devices, p.entry)
			r := resourcev1.DeviceRequestAllocationResult{
				Request: p.option.name, Driver: p.entry.Driver, Pool: p.entry.Pool, Device: p.entry.DeviceID.Device,
				Tolerations: p.option.tolerations,
			}
			if p.option.admin {
				r.AdminAccess = ptr.To(true)
			}
			if p.consumed != nil {
				one.Shares = append(one.Shares, len(one.Result.Devices.Results))
				if len(p.consumed) > 0 {
					r.ConsumedCapacity = p.consumed
				}
			}
			one.Result.Devices.Results = append(one.Result.Devices.Results, r)
		}
		one.Result.Devices.Config = a.driverConfigs(s.picked[i])
		one.Result.NodeSelector = usableNodes(devices, s.node.Name)
		out = append(out, one)
	}
	return out
}

// pickedOptions returns the option that was picked for each request of the claim.
func (a *claimRequests) pickedOptions(picked []pick) []*option {
	var out []*option
	for _, options := range a.requests {
		for _, o := range options {
			if slices.ContainsFunc(picked, func(p pick) bool { return p.option == o }) {
				out = append(out, o)
				break
			}
		}
	}
	return out
}

// driverConfigs returns the configurations for the drivers: those of the classes first, then the claim's own. Each
// lists the requests that it is for; an empty list means all.
func (a *claimRequests) driverConfigs(picked []pick) []resourcev1.DeviceAllocationConfiguration {
	var out []resourcev1.DeviceAllocationConfiguration
	chosen := a.pickedOptions(picked)
	var classes []string
	for _, o := range chosen {
		if slices.Contains(classes, o.class.Name) {
			continue
		}
		classes = append(classes, o.class.Name)
		var requests []string
		for _, other := range chosen {
			if other.class.Name == o.class.Name {
				requests = append(requests, other.name)
			}
		}
		for _, c := range o.class.Spec.Config {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClass, Requests: slices.Clone(requests),
				DeviceConfiguration: c.DeviceConfiguration,
			})
		}
	}
	for _, c := range a.claim.Spec.Devices.Config {
		named := constraint{requests: c.Requests}
		if slices.ContainsFunc(chosen, func(o *option) bool { return named.covers(o.name) }) {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: slices.Clone(c.Requests),
				DeviceConfiguration: c.DeviceConfiguration,
			})
		}
	}
	for i := range out {
		named := constraint{requests: out[i].Requests}
		if !slices.ContainsFunc(chosen, func(o *option) bool { return !named.covers(o.name) }) {
			out[i].Requests = nil
		}
	}
	return out
}

// IsUsableOn reports whether an allocation can be used on a node.
func IsUsableOn(a *resourcev1.AllocationResult, n *corev1.Node) bool {
	if a == nil || a.NodeSelector == nil {
		return true
	}
	return newNodeAccess(nil, a.NodeSelector, nil).includes(n)
}

// HasAlternatives reports whether any request has several options.
func (p *Plan) HasAlternatives() bool {
	return slices.ContainsFunc(p.claims, func(a *claimRequests) bool {
		return slices.ContainsFunc(a.requests, func(options []*option) bool { return len(options) > 1 })
	})
}

// PreferenceScore returns a score for allocations: the earlier the options that were picked, the higher the score.
func PreferenceScore(list []*Allocation) int64 {
	var sum int64
	for _, a := range list {
		for i := range a.Claim.Spec.Devices.Requests {
			r := &a.Claim.Spec.Devices.Requests[i]
			for j := range r.FirstAvailable {
				name := r.Name + "/" + r.FirstAvailable[j].Name
				if slices.ContainsFunc(a.Result.Devices.Results,
					func(d resourcev1.DeviceRequestAllocationResult) bool { return d.Request == name }) {
					sum += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - j)
				}
			}
		}
	}
	return sum
}
