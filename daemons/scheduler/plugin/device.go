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

// DevicesElsewhere refuses nodes from which devices cannot be used that a claim has.
var DevicesElsewhere = final(dynamicResources, "resourceclaim not available on the node")

var (
	devicesInUse   = final(dynamicResources, "resourceclaim in use")
	devicesNoFit   = open(dynamicResources, device.ErrNothingFits.Error())
	devicesInvalid = open(dynamicResources, device.ErrInvalidPool.Error())
	devicesGaveUp  = open(dynamicResources, device.ErrGaveUp.Error())
	devicesLate    = open(dynamicResources, device.ErrTimedOut.Error())
)

// Claims are a pod's claims of devices.
type Claims struct {
	All       []*resourcev1.ResourceClaim
	Allocated []*resourcev1.ResourceClaim // that have their devices
	open      []*resourcev1.ResourceClaim // the others

	extended bool                // the pod asks for extended resources that may be had as devices
	leftOver bool                // there is a claim for these of an earlier try, which has to go first
	plans    map[string]*planned // by these resources
}

// planned is what the claims ask for on nodes that have the same extended resources as devices.
type planned struct {
	special *Special     // the claim for these; nil: none is needed
	plan    *device.Plan // for it and the pod's own claims; nil: there are none
	refusal *Refusal
}

// On says what the pod's claims ask for on a node that do not have their devices yet.
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

// ClaimsOf looks up a pod's claims of devices, or says why they cannot be used on any node.
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

// within says from now on whether more time has passed than there is; zero is no bound.
func within(limit time.Duration, now func() time.Time) (late func() bool) {
	began := now()
	return func() bool { return limit > 0 && now().Sub(began) > limit }
}

// ReservedFor reports whether a claim is reserved for somebody.
func ReservedFor(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	for _, r := range claim.Status.ReservedFor {
		if r.UID == uid {
			return true
		}
	}
	return false
}

// devicesUnusable refuses pods with a claim of devices that no node can make usable.
func devicesUnusable(t *Task) *Refusal {
	if !wantsDevices(t) {
		return nil
	}
	_, r := ClaimsOf(t)
	return r
}

// devicesFit refuses nodes on which the devices of a claim cannot be used, and those where no devices are left for one.
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

// devicesScore prefers nodes where claims get what they would rather have.
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

// wantsDevices reports whether a pod has claims of devices, or asks for extended resources that may be had as devices.
func wantsDevices(t *Task) bool {
	return len(t.Pod.Devices) > 0 || len(t.Pod.Askers) > 0 && backable(t)
}

// devicesConcerned reports whether an event about a claim may help: it is the pod's, or its devices are free.
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
