package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// deviceStatus requires further rights for parts of a claim's status. Changing the allocation or the reservations
// requires a right on resourceclaims/binding. Changing the status of a driver's devices requires a right on
// resourceclaims/driver.
type deviceStatus struct{ authorizer api.Authorizer }

// Validate compares the status with the old status.
func (p *deviceStatus) Validate(ctx context.Context, a *api.Admission) error {
	claim, ok := a.Object.(*resourcev1.ResourceClaim)
	old, existed := a.Old.(*resourcev1.ResourceClaim)
	if !ok || !existed || a.Operation != "UPDATE" || a.Subresource != "status" {
		return nil
	}
	verb := "update"
	if a.Origin != nil {
		verb = a.Origin.Verb()
	}
	if !equality.Semantic.DeepEqual(claim.Status.Allocation, old.Status.Allocation) ||
		!equality.Semantic.DeepEqual(claim.Status.ReservedFor, old.Status.ReservedFor) {
		if !p.isAllowed(ctx, a, verb, resourcev1.SubresourceBinding, a.Name) {
			return forbidden(a, fmt.Errorf("changing status.allocation or status.reservedFor requires %s "+
				"permission on resourceclaims/%s", verb, resourcev1.SubresourceBinding))
		}
	}
	for _, driver := range changedDrivers(claim, old) {
		// A user on the claim's own node needs only the smaller right.
		if isOnNodeOf(a.User, claim) &&
			p.isAllowed(ctx, a, resourcev1.VerbPrefixAssociatedNode+verb, resourcev1.SubresourceDriver, driver) {
			continue
		}
		if !p.isAllowed(ctx, a, resourcev1.VerbPrefixArbitraryNode+verb, resourcev1.SubresourceDriver, driver) {
			return forbidden(a, fmt.Errorf("changing status.devices of driver %s requires %s%s permission on "+
				"resourceclaims/%s, or %s%s permission on the node that the claim is allocated to", driver,
				resourcev1.VerbPrefixArbitraryNode, verb, resourcev1.SubresourceDriver,
				resourcev1.VerbPrefixAssociatedNode, verb))
		}
	}
	return nil
}

func (p *deviceStatus) isAllowed(ctx context.Context, a *api.Admission, verb, subresource, name string) bool {
	d, _, err := p.authorizer.Authorize(ctx, a.User, api.Request{
		Verb: verb, Resource: true, Namespace: a.Namespace, Name: name, Subresource: subresource,
		GroupVersionResource: schema.GroupVersionResource{
			Group:    resourcev1.GroupName,
			Version:  "v1",
			Resource: "resourceclaims",
		},
	})
	return err == nil && d == api.Allow
}

// changedDrivers returns the drivers for which the status of devices changes.
func changedDrivers(claim, old *resourcev1.ResourceClaim) (drivers []string) {
	of := func(c *resourcev1.ResourceClaim, driver string) (list []resourcev1.AllocatedDeviceStatus) {
		for _, d := range c.Status.Devices {
			if d.Driver == driver {
				list = append(list, d)
			}
		}
		return list
	}
	for _, d := range slices.Concat(claim.Status.Devices, old.Status.Devices) {
		if !slices.Contains(drivers, d.Driver) && !equality.Semantic.DeepEqual(of(claim, d.Driver), of(old, d.Driver)) {
			drivers = append(drivers, d.Driver)
		}
	}
	return drivers
}

// isOnNodeOf reports whether a user's token is bound to the one node that has a claim's devices.
func isOnNodeOf(u api.User, claim *resourcev1.ResourceClaim) bool {
	node := u.Extra["authentication.kubernetes.io/node-name"]
	if len(node) != 1 || claim.Status.Allocation == nil || claim.Status.Allocation.NodeSelector == nil {
		return false
	}
	terms := claim.Status.Allocation.NodeSelector.NodeSelectorTerms
	if len(terms) != 1 {
		return false
	}
	return slices.ContainsFunc(terms[0].MatchFields, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 &&
			r.Values[0] == node[0]
	})
}
