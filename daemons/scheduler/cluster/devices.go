package cluster

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/scheduler/device"
)

// Devices is the claims of devices, their classes, and what drivers tell of devices. What has been decided for claims
// and the API does not show yet is taken into account.
type Devices struct {
	Catalog *device.Catalog
	Use     *device.Use

	claims   map[string]*resourcev1.ResourceClaim // by namespace/name
	classes  map[string]*resourcev1.DeviceClass
	extended map[corev1.ResourceName]*resourcev1.DeviceClass // by the extended resource that the class stands for
	made     map[string]*resourcev1.ResourceClaim            // for pods' extended resources, by the pod's namespace/UID
	assumed  map[types.UID]*assumed                          // by the claim's UID
	compiled map[string]*expression.Device
}

// assumed is what a claim gets, in writing or written.
type assumed struct {
	result  *resourcev1.AllocationResult
	version string // of the claim with it; empty: in writing
	doubt   bool   // the write may have been carried out or not
	unseen  bool   // the claim was created here, and no watch has shown it yet
}

// PodClaim is a claim of devices that a pod names, or that is made for it from a template.
type PodClaim struct {
	Name  string // in the pod
	Claim string // the object's name; empty: there is none yet
	Own   bool   // it is made for the pod
	None  bool   // it turned out that none is needed
}

func newDevices() *Devices {
	return &Devices{
		Catalog: device.NewCatalog(), Use: device.NewUse(), claims: map[string]*resourcev1.ResourceClaim{},
		classes:  map[string]*resourcev1.DeviceClass{},
		extended: map[corev1.ResourceName]*resourcev1.DeviceClass{}, made: map[string]*resourcev1.ResourceClaim{},
		assumed: map[types.UID]*assumed{}, compiled: map[string]*expression.Device{},
	}
}

// Set takes in a claim, class, slice or rule.
func (d *Devices) Set(obj any) {
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		key := o.Namespace + "/" + o.Name
		if old := d.claims[key]; old != nil {
			d.Use.Remove(old.Status.Allocation)
			if old.UID != o.UID {
				d.forget(old.UID)
				delete(d.made, madeFor(old))
			}
		}
		d.claims[key] = o
		if pod := madeFor(o); pod != "" {
			d.made[pod] = o
		}
		if a := d.assumed[o.UID]; a != nil {
			a.unseen = false
		}
		d.Use.Add(o.Status.Allocation)
		if a := d.assumed[o.UID]; a != nil && a.doubt && o.Status.Allocation != nil {
			d.forget(o.UID)
		} else if a != nil && a.version != "" {
			if order, err := resourceversion.CompareResourceVersion(o.ResourceVersion,
				a.version); o.Status.Allocation != nil || err != nil || order >= 0 {
				d.forget(o.UID)
			}
		}
	case *resourcev1.DeviceClass:
		d.classes[o.Name] = o
		d.nameClasses()
	case *resourcev1.ResourceSlice:
		d.Catalog.SetSlice(o)
	case *resourcev1.DeviceTaintRule:
		d.Catalog.SetRule(o)
	}
}

// Drop forgets one of these.
func (d *Devices) Drop(obj any) {
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		key := o.Namespace + "/" + o.Name
		if old := d.claims[key]; old != nil {
			d.Use.Remove(old.Status.Allocation)
			d.forget(old.UID)
			delete(d.claims, key)
			if pod := madeFor(old); pod != "" && d.made[pod] == old {
				delete(d.made, pod)
			}
		}
	case *resourcev1.DeviceClass:
		delete(d.classes, o.Name)
		d.nameClasses()
	case *resourcev1.ResourceSlice:
		d.Catalog.DropSlice(o)
	case *resourcev1.DeviceTaintRule:
		d.Catalog.DropRule(o)
	}
}

// Claim returns a claim, nil if there is none.
func (d *Devices) Claim(namespace, name string) *resourcev1.ResourceClaim {
	return d.claims[namespace+"/"+name]
}

// Class returns a class, nil if there is none.
func (d *Devices) Class(name string) *resourcev1.DeviceClass { return d.classes[name] }

// compiledKept bounds the expressions that are kept compiled.
const compiledKept = 1024

// Compile compiles an expression once.
func (d *Devices) Compile(text string) (*expression.Device, error) {
	if known := d.compiled[text]; known != nil {
		return known, nil
	}
	c, err := expression.CompileDevice(text)
	if err != nil {
		return nil, err
	}
	if len(d.compiled) >= compiledKept {
		clear(d.compiled)
	}
	d.compiled[text] = c
	return c, nil
}

// Assume counts what claims get before the API shows it.
func (d *Devices) Assume(list []*device.Allocation) {
	for _, a := range list {
		d.forget(a.Claim.UID)
		d.assumed[a.Claim.UID] = &assumed{result: a.Result}
		d.Use.Add(a.Result)
	}
}

// Assumed reports whether something is being written for a claim, or has been that the API does not show yet.
func (d *Devices) Assumed(claim *resourcev1.ResourceClaim) bool { return d.assumed[claim.UID] != nil }

// Written keeps what a claim gets until the API shows it, or a later version without it.
func (d *Devices) Written(claim *resourcev1.ResourceClaim) {
	a := d.assumed[claim.UID]
	if a == nil {
		return
	}
	if a.version = claim.ResourceVersion; d.claims[claim.Namespace+"/"+claim.Name] != nil {
		d.Set(d.claims[claim.Namespace+"/"+claim.Name]) // it may be that version
	} else if !a.unseen {
		d.forget(claim.UID)
	}
}

// Doubt keeps what a claim gets although its write failed, since nobody knows whether it was carried out. It ends when
// the API shows the claim with devices or gone, or with Disprove.
func (d *Devices) Doubt(claim *resourcev1.ResourceClaim) {
	a := d.assumed[claim.UID]
	if a == nil {
		return
	}
	a.doubt = true
	if shown := d.Claim(claim.Namespace, claim.Name); shown != nil && shown.UID == claim.UID &&
		shown.Status.Allocation != nil {
		d.forget(claim.UID)
	}
}

// Doubted reports whether it is still unknown what became of the write of a claim.
func (d *Devices) Doubted(claim *resourcev1.ResourceClaim) bool {
	a := d.assumed[claim.UID]
	return a != nil && a.doubt && a.version == ""
}

// Disprove frees what a claim would have got: the write that was in doubt was not carried out.
func (d *Devices) Disprove(claim *resourcev1.ResourceClaim) {
	if d.Doubted(claim) {
		d.forget(claim.UID)
	}
}

// Release takes back what was not written after all. What is in doubt stays.
func (d *Devices) Release(list []*device.Allocation) {
	for _, a := range list {
		if now := d.assumed[a.Claim.UID]; now != nil && now.version == "" && !now.doubt {
			d.forget(a.Claim.UID)
		}
	}
}

func (d *Devices) forget(uid types.UID) {
	if a := d.assumed[uid]; a != nil {
		d.Use.Remove(a.result)
		delete(d.assumed, uid)
	}
}

// podClaims reads the claims that a pod names, with the names of those that were made for it.
func podClaims(pod *corev1.Pod) []PodClaim {
	var out []PodClaim
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		if c.ResourceClaimName != nil {
			out = append(out, PodClaim{Name: c.Name, Claim: *c.ResourceClaimName})
			continue
		}
		one := PodClaim{Name: c.Name, Own: true}
		for _, made := range pod.Status.ResourceClaimStatuses {
			if made.Name != c.Name {
				continue
			}
			if one.None = made.ResourceClaimName == nil; !one.None {
				one.Claim = *made.ResourceClaimName
			}
		}
		out = append(out, one)
	}
	return out
}

// Object is the node as selectors see it: its name and its labels.
func (n *NodeObject) Object() *corev1.Node { return n.match }
