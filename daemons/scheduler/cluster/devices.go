package cluster

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/scheduler/device"
)

// Devices holds the ResourceClaims, their classes, and the devices that drivers publish. It includes allocations that
// are decided and that the API does not show yet.
type Devices struct {
	Catalog *device.Catalog
	Use     *device.Use

	claims   map[string]*resourcev1.ResourceClaim // by namespace/name
	classes  map[string]*resourcev1.DeviceClass
	extended map[corev1.ResourceName]*resourcev1.DeviceClass // by extended resource: its device class
	// by the pod's namespace/UID: claims for extended resources
	createdClaims map[string]*resourcev1.ResourceClaim
	assumed       map[types.UID]*assumedAllocation // by the claim's UID
	compiled      map[string]*expression.Device
}

// assumedAllocation is an allocation that is being written or was written.
type assumedAllocation struct {
	result        *resourcev1.AllocationResult
	version       string // of the claim after the write; empty while it is being written
	uncertain     bool   // the outcome of the write is unknown
	awaitingWatch bool   // the claim was created here, and the watch has not shown it yet
}

// PodClaim is a ResourceClaim that a pod names, or that is created for the pod from a template.
type PodClaim struct {
	Name        string // name of the entry in the pod
	Claim       string // the object's name; empty if it does not exist yet
	IsGenerated bool   // it is created for the pod
	NotNeeded   bool   // no claim is needed
}

func newDevices() *Devices {
	return &Devices{
		Catalog: device.NewCatalog(), Use: device.NewUse(), claims: map[string]*resourcev1.ResourceClaim{},
		classes:       map[string]*resourcev1.DeviceClass{},
		extended:      map[corev1.ResourceName]*resourcev1.DeviceClass{},
		createdClaims: map[string]*resourcev1.ResourceClaim{},
		assumed:       map[types.UID]*assumedAllocation{}, compiled: map[string]*expression.Device{},
	}
}

// Set adds or updates a claim, class, slice or rule.
func (d *Devices) Set(obj any) {
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		key := o.Namespace + "/" + o.Name
		if old := d.claims[key]; old != nil {
			d.Use.Remove(old.Status.Allocation)
			if old.UID != o.UID {
				d.releaseAssumed(old.UID)
				delete(d.createdClaims, podOfCreatedClaim(old))
			}
		}
		d.claims[key] = o
		if pod := podOfCreatedClaim(o); pod != "" {
			d.createdClaims[pod] = o
		}
		if a := d.assumed[o.UID]; a != nil {
			a.awaitingWatch = false
		}
		d.Use.Add(o.Status.Allocation)
		if a := d.assumed[o.UID]; a != nil && a.uncertain && o.Status.Allocation != nil {
			d.releaseAssumed(o.UID)
		} else if a != nil && a.version != "" {
			if order, err := resourceversion.CompareResourceVersion(o.ResourceVersion,
				a.version); o.Status.Allocation != nil || err != nil || order >= 0 {
				d.releaseAssumed(o.UID)
			}
		}
	case *resourcev1.DeviceClass:
		d.classes[o.Name] = o
		d.mapExtendedResources()
	case *resourcev1.ResourceSlice:
		d.Catalog.SetSlice(o)
	case *resourcev1.DeviceTaintRule:
		d.Catalog.SetRule(o)
	}
}

// Delete removes a claim, class, slice or rule.
func (d *Devices) Delete(obj any) {
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		key := o.Namespace + "/" + o.Name
		if old := d.claims[key]; old != nil {
			d.Use.Remove(old.Status.Allocation)
			d.releaseAssumed(old.UID)
			delete(d.claims, key)
			if pod := podOfCreatedClaim(old); pod != "" && d.createdClaims[pod] == old {
				delete(d.createdClaims, pod)
			}
		}
	case *resourcev1.DeviceClass:
		delete(d.classes, o.Name)
		d.mapExtendedResources()
	case *resourcev1.ResourceSlice:
		d.Catalog.DropSlice(o)
	case *resourcev1.DeviceTaintRule:
		d.Catalog.DropRule(o)
	}
}

// Claim returns a claim, or nil.
func (d *Devices) Claim(namespace, name string) *resourcev1.ResourceClaim {
	return d.claims[namespace+"/"+name]
}

// Class returns a class, or nil.
func (d *Devices) Class(name string) *resourcev1.DeviceClass { return d.classes[name] }

// maxCompiled is the maximum number of compiled expressions in the cache.
const maxCompiled = 1024

// Compile compiles an expression, or returns it from the cache.
func (d *Devices) Compile(text string) (*expression.Device, error) {
	if compiled := d.compiled[text]; compiled != nil {
		return compiled, nil
	}
	c, err := expression.CompileDevice(text)
	if err != nil {
		return nil, err
	}
	if len(d.compiled) >= maxCompiled {
		clear(d.compiled)
	}
	d.compiled[text] = c
	return c, nil
}

// Assume counts allocations before the API shows them.
func (d *Devices) Assume(list []*device.Allocation) {
	for _, a := range list {
		d.releaseAssumed(a.Claim.UID)
		d.assumed[a.Claim.UID] = &assumedAllocation{result: a.Result}
		d.Use.Add(a.Result)
	}
}

// IsAssumed reports whether an allocation of a claim is being written, or was written and is not shown by the API yet.
func (d *Devices) IsAssumed(claim *resourcev1.ResourceClaim) bool { return d.assumed[claim.UID] != nil }

// MarkWritten retains a claim's allocation until the API shows it, or shows a later version without it.
func (d *Devices) MarkWritten(claim *resourcev1.ResourceClaim) {
	a := d.assumed[claim.UID]
	if a == nil {
		return
	}
	if a.version = claim.ResourceVersion; d.claims[claim.Namespace+"/"+claim.Name] != nil {
		d.Set(d.claims[claim.Namespace+"/"+claim.Name]) // the present object may be that version
	} else if !a.awaitingWatch {
		d.releaseAssumed(claim.UID)
	}
}

// MarkUncertain retains a claim's allocation although its write failed, since the write may have been carried out. The
// doubt ends when the API shows the claim with an allocation or as deleted, or with ConfirmUnwritten.
func (d *Devices) MarkUncertain(claim *resourcev1.ResourceClaim) {
	a := d.assumed[claim.UID]
	if a == nil {
		return
	}
	a.uncertain = true
	if shown := d.Claim(claim.Namespace, claim.Name); shown != nil && shown.UID == claim.UID &&
		shown.Status.Allocation != nil {
		d.releaseAssumed(claim.UID)
	}
}

// IsUncertain reports whether the outcome of a claim's write is still unknown.
func (d *Devices) IsUncertain(claim *resourcev1.ResourceClaim) bool {
	a := d.assumed[claim.UID]
	return a != nil && a.uncertain && a.version == ""
}

// ConfirmUnwritten releases the allocation of a claim whose write was in doubt and was not carried out.
func (d *Devices) ConfirmUnwritten(claim *resourcev1.ResourceClaim) {
	if d.IsUncertain(claim) {
		d.releaseAssumed(claim.UID)
	}
}

// Release releases allocations that were not written. Those in doubt stay.
func (d *Devices) Release(list []*device.Allocation) {
	for _, a := range list {
		if now := d.assumed[a.Claim.UID]; now != nil && now.version == "" && !now.uncertain {
			d.releaseAssumed(a.Claim.UID)
		}
	}
}

func (d *Devices) releaseAssumed(uid types.UID) {
	if a := d.assumed[uid]; a != nil {
		d.Use.Remove(a.result)
		delete(d.assumed, uid)
	}
}

// podClaims returns the claims that a pod names, and those that were created for it.
func podClaims(pod *corev1.Pod) []PodClaim {
	var out []PodClaim
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		if c.ResourceClaimName != nil {
			out = append(out, PodClaim{Name: c.Name, Claim: *c.ResourceClaimName})
			continue
		}
		one := PodClaim{Name: c.Name, IsGenerated: true}
		for _, made := range pod.Status.ResourceClaimStatuses {
			if made.Name != c.Name {
				continue
			}
			if one.NotNeeded = made.ResourceClaimName == nil; !one.NotNeeded {
				one.Claim = *made.ResourceClaimName
			}
		}
		out = append(out, one)
	}
	return out
}

// Object returns the node in the form that selectors need: its name and labels.
func (n *NodeObject) Object() *corev1.Node { return n.match }
