package plugin

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/device"
)

const dynamicResources = "DynamicResources"

// DevicesUnreachable refuses nodes that cannot use the devices of an allocated claim.
var DevicesUnreachable = finalRefusal(dynamicResources, "resourceclaim not available on the node")

var (
	devicesInUse        = finalRefusal(dynamicResources, "resourceclaim in use")
	devicesInsufficient = resolvableRefusal(dynamicResources, device.ErrNothingFits.Error())
	devicesInvalid      = resolvableRefusal(dynamicResources, device.ErrInvalidPool.Error())
	devicesGaveUp       = resolvableRefusal(dynamicResources, device.ErrGaveUp.Error())
	devicesTimedOut     = resolvableRefusal(dynamicResources, device.ErrTimedOut.Error())
)

// Claims holds a pod's ResourceClaims.
type Claims struct {
	All         []*resourcev1.ResourceClaim
	Allocated   []*resourcev1.ResourceClaim // those that have devices
	unallocated []*resourcev1.ResourceClaim // the others

	requestsExtended bool                 // the pod requests extended resources that devices may provide
	hasLeftOver      bool                 // a claim for them from an earlier attempt must be deleted first
	plans            map[string]*nodePlan // by the extended resources that a node provides as devices
}

// nodePlan holds the requests for devices on nodes that provide the same extended resources as devices.
type nodePlan struct {
	extendedClaim *ExtendedClaim // claim for the extended resources; nil if none is needed
	plan          *device.Plan   // requests of that claim and of the pod's own claims; nil if there are none
	refusal       *Refusal
}

// PlanFor returns the requests of the pod's unallocated claims on a node.
func (c *Claims) PlanFor(t *Task, n *cluster.Node) (*ExtendedClaim, *device.Plan, *Refusal) {
	var names []corev1.ResourceName
	if c.hasLeftOver {
		return nil, nil, ClaimLeftOver
	}
	if c.requestsExtended {
		var r *Refusal
		if names, r = resourcesFromDevices(t, n); r != nil {
			return nil, nil, r
		}
	}
	key := join(names)
	p := c.plans[key]
	if p == nil {
		p = c.newNodePlan(t, names)
		c.plans[key] = p
	}
	return p.extendedClaim, p.plan, p.refusal
}

func (c *Claims) newNodePlan(t *Task, names []corev1.ResourceName) *nodePlan {
	p, open := &nodePlan{}, c.unallocated
	if len(names) > 0 {
		p.extendedClaim = newExtendedClaim(t, names)
		open = append(open[:len(open):len(open)], p.extendedClaim.Claim)
	}
	if len(open) == 0 {
		return p
	}
	plan, err := device.NewPlan(open, t.Devices.Class, t.Devices.Compile)
	if err != nil {
		p.refusal = finalRefusal(dynamicResources, err.Error())
		return p
	}
	if t.Args != nil && t.Args.DeviceTimeout != nil {
		plan.Start = func() func() bool { return startTimeLimit(*t.Args.DeviceTimeout, time.Now) }
	}
	p.plan = plan
	return p
}

// ClaimsOf returns a pod's ResourceClaims, or why no node can satisfy them.
func ClaimsOf(t *Task) (c Claims, r *Refusal) {
	refuse := func(format string, args ...any) (Claims, *Refusal) {
		return c, finalRefusal(dynamicResources, fmt.Sprintf(format, args...))
	}
	for _, want := range t.Pod.Devices {
		if want.NotNeeded {
			continue
		}
		if want.Claim == "" {
			return refuse("pod %q: ResourceClaim not created yet", t.Pod.Key())
		}
		claim := t.Devices.Claim(t.Pod.Namespace, want.Claim)
		switch {
		case claim == nil:
			return refuse("resourceclaim %q not found", want.Claim)
		case claim.DeletionTimestamp != nil:
			return refuse("resourceclaim %q is being deleted", want.Claim)
		case want.IsGenerated && !metav1.IsControlledBy(claim, t.Pod):
			return refuse("ResourceClaim %s/%s was not created for Pod %s (Pod is not owner)", claim.Namespace,
				claim.Name, t.Pod.Key())
		case claim.Status.Allocation == nil && t.Devices.IsAssumed(claim):
			return refuse("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name)
		case claim.Status.Allocation == nil:
			c.unallocated = append(c.unallocated, claim)
		case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize &&
			!IsReservedFor(claim, t.Pod.UID):
			return c, devicesInUse
		default:
			c.Allocated = append(c.Allocated, claim)
		}
		c.All = append(c.All, claim)
	}
	c.requestsExtended = len(t.Pod.ContainerRequests) > 0 && canUseDevices(t)
	c.hasLeftOver = c.requestsExtended && t.Devices.CreatedClaim(t.Pod) != nil
	own := c.newNodePlan(t, nil)
	c.plans = map[string]*nodePlan{"": own}
	return c, own.refusal
}

// startTimeLimit returns a function that reports whether more than limit has passed since this call. Zero means no
// limit.
func startTimeLimit(limit time.Duration, now func() time.Time) (isLate func() bool) {
	start := now()
	return func() bool { return limit > 0 && now().Sub(start) > limit }
}

// IsReservedFor reports whether a claim is reserved for an object.
func IsReservedFor(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	for _, r := range claim.Status.ReservedFor {
		if r.UID == uid {
			return true
		}
	}
	return false
}

// devicesUnusable refuses pods with a ResourceClaim that no node can satisfy.
func devicesUnusable(t *Task) *Refusal {
	if !needsDevices(t) {
		return nil
	}
	_, r := ClaimsOf(t)
	return r
}

// devicesFit refuses nodes that cannot use the devices of an allocated claim, and nodes without enough devices for the
// others.
func devicesFit(t *Task) Check {
	if !needsDevices(t) {
		return nil
	}
	claims, r := ClaimsOf(t)
	if r != nil {
		return func(*cluster.Node) *Refusal { return r }
	}
	return func(n *cluster.Node) *Refusal {
		for _, c := range claims.Allocated {
			if !device.IsUsableOn(c.Status.Allocation, n.Object()) {
				return DevicesUnreachable
			}
		}
		_, plan, r := claims.PlanFor(t, n)
		if plan == nil {
			return r
		}
		_, err := plan.AllocateOn(n.Object(), t.Devices.Catalog, t.Devices.Use)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, device.ErrNothingFits):
			return devicesInsufficient
		case errors.Is(err, device.ErrInvalidPool):
			return devicesInvalid
		case errors.Is(err, device.ErrGaveUp):
			return devicesGaveUp
		case errors.Is(err, device.ErrTimedOut):
			return devicesTimedOut
		}
		return finalRefusal(dynamicResources, err.Error())
	}
}

// devicesScore prefers nodes on which claims get more preferred options.
func devicesScore(t *Task, _ []*cluster.Node) Rate {
	if len(t.Pod.Devices) == 0 {
		return nil
	}
	claims, r := ClaimsOf(t)
	if r != nil || claims.plans[""].plan == nil || !claims.plans[""].plan.HasAlternatives() {
		return nil
	}
	return func(n *cluster.Node) int64 {
		_, plan, r := claims.PlanFor(t, n)
		if plan == nil || r != nil {
			return 0
		}
		got, err := plan.AllocateOn(n.Object(), t.Devices.Catalog, t.Devices.Use)
		if err != nil {
			return 0
		}
		return device.PreferenceScore(got)
	}
}

// needsDevices reports whether a pod has ResourceClaims, or requests extended resources that devices may provide.
func needsDevices(t *Task) bool {
	return len(t.Pod.Devices) > 0 || len(t.Pod.ContainerRequests) > 0 && canUseDevices(t)
}

// devicesHint reports whether an event about a ResourceClaim may help: it is the pod's, or it has freed devices.
func devicesHint(t *Task, what ClusterEvent) bool {
	if what.Claim == "" || what.IsFreed {
		return true
	}
	for _, c := range t.Pod.Devices {
		if t.Pod.Namespace+"/"+c.Claim == what.Claim {
			return true
		}
	}
	return false
}
