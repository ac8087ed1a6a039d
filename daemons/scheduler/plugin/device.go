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

// DevicesElsewhere refuses nodes that cannot use the devices of an allocated claim.
var DevicesElsewhere = final(dynamicResources, "resourceclaim not available on the node")

var (
	devicesInUse   = final(dynamicResources, "resourceclaim in use")
	devicesNoFit   = open(dynamicResources, device.ErrNothingFits.Error())
	devicesInvalid = open(dynamicResources, device.ErrInvalidPool.Error())
	devicesGaveUp  = open(dynamicResources, device.ErrGaveUp.Error())
	devicesLate    = open(dynamicResources, device.ErrTimedOut.Error())
)

// Claims holds a pod's ResourceClaims.
type Claims struct {
	All       []*resourcev1.ResourceClaim
	Allocated []*resourcev1.ResourceClaim // those that have devices
	open      []*resourcev1.ResourceClaim // the others

	extended bool                // the pod requests extended resources that devices may provide
	leftOver bool                // a claim for them from an earlier attempt must be deleted first
	plans    map[string]*planned // by the extended resources that a node provides as devices
}

// planned holds the requests for devices on nodes that provide the same extended resources as devices.
type planned struct {
	special *Special     // claim for the extended resources; nil if none is needed
	plan    *device.Plan // requests of that claim and of the pod's own claims; nil if there are none
	refusal *Refusal
}

// On returns the requests of the pod's unallocated claims on a node.
func (c *Claims) On(t *Task, n *cluster.Node) (*Special, *device.Plan, *Refusal) {
	var names []corev1.ResourceName
	if c.leftOver {
		return nil, nil, ClaimLeftOver
	}
	if c.extended {
		var r *Refusal
		if names, r = backedOn(t, n); r != nil {
			return nil, nil, r
		}
	}
	key := join(names)
	p := c.plans[key]
	if p == nil {
		p = c.plan(t, names)
		c.plans[key] = p
	}
	return p.special, p.plan, p.refusal
}

func (c *Claims) plan(t *Task, names []corev1.ResourceName) *planned {
	p, open := &planned{}, c.open
	if len(names) > 0 {
		p.special = special(t, names)
		open = append(open[:len(open):len(open)], p.special.Claim)
	}
	if len(open) == 0 {
		return p
	}
	plan, err := device.NewPlan(open, t.Devices.Class, t.Devices.Compile)
	if err != nil {
		p.refusal = final(dynamicResources, err.Error())
		return p
	}
	if t.Args != nil && t.Args.DeviceTimeout != nil {
		plan.Start = func() func() bool { return within(*t.Args.DeviceTimeout, time.Now) }
	}
	p.plan = plan
	return p
}

// ClaimsOf returns a pod's ResourceClaims, or why no node can satisfy them.
func ClaimsOf(t *Task) (c Claims, r *Refusal) {
	refuse := func(format string, args ...any) (Claims, *Refusal) {
		return c, final(dynamicResources, fmt.Sprintf(format, args...))
	}
	for _, want := range t.Pod.Devices {
		if want.None {
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
		case want.Own && !metav1.IsControlledBy(claim, t.Pod):
			return refuse(
				"ResourceClaim %s/%s was not created for Pod %s (Pod is not owner)",
				claim.Namespace,
				claim.Name,
				t.Pod.Key(),
			)
		case claim.Status.Allocation == nil && t.Devices.Assumed(claim):
			return refuse("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name)
		case claim.Status.Allocation == nil:
			c.open = append(c.open, claim)
		case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize &&
			!ReservedFor(claim, t.Pod.UID):
			return c, devicesInUse
		default:
			c.Allocated = append(c.Allocated, claim)
		}
		c.All = append(c.All, claim)
	}
	c.extended = len(t.Pod.Askers) > 0 && backable(t)
	c.leftOver = c.extended && t.Devices.Made(t.Pod) != nil
	own := c.plan(t, nil)
	c.plans = map[string]*planned{"": own}
	return c, own.refusal
}

// within returns a function that reports whether more than limit has passed since this call. Zero means no limit.
func within(limit time.Duration, now func() time.Time) (late func() bool) {
	began := now()
	return func() bool { return limit > 0 && now().Sub(began) > limit }
}

// ReservedFor reports whether a claim is reserved for an object.
func ReservedFor(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	for _, r := range claim.Status.ReservedFor {
		if r.UID == uid {
			return true
		}
	}
	return false
}

// devicesUnusable refuses pods with a ResourceClaim that no node can satisfy.
func devicesUnusable(t *Task) *Refusal {
	if !wantsDevices(t) {
		return nil
	}
	_, r := ClaimsOf(t)
	return r
}

// devicesFit refuses nodes that cannot use the devices of an allocated claim, and nodes without enough devices for the
// others.
func devicesFit(t *Task) Check {
	if !wantsDevices(t) {
		return nil
	}
	claims, r := ClaimsOf(t)
	if r != nil {
		return func(*cluster.Node) *Refusal { return r }
	}
	return func(n *cluster.Node) *Refusal {
		for _, c := range claims.Allocated {
			if !device.Reaches(c.Status.Allocation, n.Object()) {
				return DevicesElsewhere
			}
		}
		_, plan, r := claims.On(t, n)
		if plan == nil {
			return r
		}
		_, err := plan.On(n.Object(), t.Devices.Catalog, t.Devices.Use)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, device.ErrNothingFits):
			return devicesNoFit
		case errors.Is(err, device.ErrInvalidPool):
			return devicesInvalid
		case errors.Is(err, device.ErrGaveUp):
			return devicesGaveUp
		case errors.Is(err, device.ErrTimedOut):
			return devicesLate
		}
		return final(dynamicResources, err.Error())
	}
}

// devicesScore prefers nodes on which claims get more preferred options.
func devicesScore(t *Task, _ []*cluster.Node) Rate {
	if len(t.Pod.Devices) == 0 {
		return nil
	}
	claims, r := ClaimsOf(t)
	if r != nil || claims.plans[""].plan == nil || !claims.plans[""].plan.Choosy() {
		return nil
	}
	return func(n *cluster.Node) int64 {
		_, plan, r := claims.On(t, n)
		if plan == nil || r != nil {
			return 0
		}
		got, err := plan.On(n.Object(), t.Devices.Catalog, t.Devices.Use)
		if err != nil {
			return 0
		}
		return device.Preference(got)
	}
}

// wantsDevices reports whether a pod has ResourceClaims, or requests extended resources that devices may provide.
func wantsDevices(t *Task) bool {
	return len(t.Pod.Devices) > 0 || len(t.Pod.Askers) > 0 && backable(t)
}

// devicesConcerned reports whether an event about a ResourceClaim may help: it is the pod's, or it has freed devices.
func devicesConcerned(t *Task, what Happened) bool {
	if what.Claim == "" || what.Freed {
		return true
	}
	for _, c := range t.Pod.Devices {
		if t.Pod.Namespace+"/"+c.Claim == what.Claim {
			return true
		}
	}
	return false
}
