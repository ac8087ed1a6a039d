package plugin

import (
	"errors"
	"fmt"
	"time"

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
	Plan      *device.Plan                // for the others; nil: there are none
}

// ClaimsOf looks up a pod's claims of devices, or says why they cannot be used on any node.
func ClaimsOf(t *Task) (c Claims, r *Refusal) {
	refuse := func(format string, args ...any) (Claims, *Refusal) {
		return c, final(dynamicResources, fmt.Sprintf(format, args...))
	}
	var open []*resourcev1.ResourceClaim
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
			return refuse("ResourceClaim %s/%s was not created for Pod %s (Pod is not owner)", claim.Namespace, claim.Name, t.Pod.Key())
		case claim.Status.Allocation == nil && t.Devices.Assumed(claim):
			return refuse("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name)
		case claim.Status.Allocation == nil:
			open = append(open, claim)
		case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize && !ReservedFor(claim, t.Pod.UID):
			return c, devicesInUse
		default:
			c.Allocated = append(c.Allocated, claim)
		}
		c.All = append(c.All, claim)
	}
	if len(open) == 0 {
		return c, nil
	}
	plan, err := device.NewPlan(open, t.Devices.Class, t.Devices.Compile)
	if err != nil {
		return refuse("%v", err)
	}
	if t.Args != nil && t.Args.DeviceTimeout != nil {
		plan.Start = func() func() bool { return within(*t.Args.DeviceTimeout, time.Now) }
	}
	c.Plan = plan
	return c, nil
}

// within says from now on whether more time has passed than there is; zero is no bound.
func within(limit time.Duration, now func() time.Time) (late func() bool) {
	began := now()
	return func() bool { return limit > 0 && now().Sub(began) > limit }
}

// ReservedFor says whether a claim is reserved for somebody.
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
	if len(t.Pod.Devices) == 0 {
		return nil
	}
	_, r := ClaimsOf(t)
	return r
}

// devicesFit refuses nodes on which the devices of a claim cannot be used, and those where no devices are left for one.
func devicesFit(t *Task) Check {
	if len(t.Pod.Devices) == 0 {
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
		if claims.Plan == nil {
			return nil
		}
		_, err := claims.Plan.On(n.Object(), t.Devices.Catalog, t.Devices.Use)
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
	if r != nil || claims.Plan == nil || !claims.Plan.Choosy() {
		return nil
	}
	return func(n *cluster.Node) int64 {
		got, err := claims.Plan.On(n.Object(), t.Devices.Catalog, t.Devices.Use)
		if err != nil {
			return 0
		}
		return device.Preference(got)
	}
}

// devicesConcerned says whether an event about a claim may help: it is the pod's, or its devices are free.
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
