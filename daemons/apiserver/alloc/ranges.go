package alloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/store"
)

var rangesGR = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}

// DefaultRange is the name of the ServiceCIDR with the server's own networks.
const DefaultRange = "kubernetes"

// addressRange is a network from which addresses are allocated. Claiming an address requires that the ServiceCIDR of
// the network has not changed. So no address is allocated from a range that is being deleted.
type addressRange struct {
	name    string
	network netip.Prefix
	guard   store.Guard // without a key for a network of the server itself that has no ServiceCIDR yet
}

// ranges returns the networks of a family from which addresses are allocated, the server's own first. They belong to
// ServiceCIDRs that are ready and not being deleted. While there is no ServiceCIDR, they are the server's own networks.
func (a *Services) ranges(family corev1.IPFamily) ([]addressRange, error) {
	if a.serviceCIDRs == nil || a.serviceCIDRs.Len() == 0 {
		return a.ownRanges(family), nil
	}
	if unread := a.serviceCIDRs.ReadErrors("", 1); len(unread) > 0 {
		return nil, fmt.Errorf("read the ranges of service addresses: %w", unread[0])
	}
	var list []addressRange
	var failed error
	a.serviceCIDRs.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		obj, err := e.Object()
		if err != nil {
			failed = fmt.Errorf("read the ServiceCIDR %s: %w", e.Key, err)
			return false
		}
		c, ok := obj.(*networkingv1.ServiceCIDR)
		if !ok || c.DeletionTimestamp != nil || !isReady(c) {
			return true
		}
		for _, cidr := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil && familyOf(p.Addr()) == family {
				list = append(
					list,
					addressRange{
						name:    c.Name,
						network: p.Masked(),
						guard:   store.Guard{Key: a.cache.Key(a.serviceCIDRs.Kind, e.Key), Revision: e.Revision},
					},
				)
			}
		}
		return true
	})
	if failed != nil {
		return nil, failed
	}
	slices.SortStableFunc(list, func(x, y addressRange) int {
		switch {
		case x.name == DefaultRange && y.name != DefaultRange:
			return -1
		case y.name == DefaultRange && x.name != DefaultRange:
			return 1
		}
		return strings.Compare(x.name, y.name)
	})
	return list, nil
}

// isReady reports whether addresses are allocated from a range. A server sets the Ready condition of its own range a
// moment after creating it, and must not refuse Services in between.
func isReady(c *networkingv1.ServiceCIDR) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue || ready == nil && c.Name == DefaultRange
}

func (a *Services) ownRanges(family corev1.IPFamily) (list []addressRange) {
	for _, n := range a.networks {
		if familyOf(n.Addr()) == family {
			list = append(list, addressRange{name: DefaultRange, network: n})
		}
	}
	return list
}

func joinRanges(ranges []addressRange) string {
	var list []string
	for _, r := range ranges {
		list = append(list, r.network.String())
	}
	return strings.Join(list, ", ")
}
