// Package loadbalancer defines what the service controller and the machines' network daemons share about Services of
// type LoadBalancer: which Services they handle, and which addresses the machines announce. The pools are in
// daemons/config.
package loadbalancer

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const (
	// Class is the loadBalancerClass of Services that get addresses from pools. Services without a class get them too.
	Class = "clusterctl.local/pool"
	// PoolAnnotation of a Service names the pool for its addresses.
	PoolAnnotation = "clusterctl.local/load-balancer-pool"
	// AddressesAnnotation of a Service lists the addresses that it requests, separated by commas.
	AddressesAnnotation = "clusterctl.local/load-balancer-ips"
	// ShareAnnotation has the same value in Services that may share an address.
	ShareAnnotation = "clusterctl.local/allow-shared-address"
	// Condition of a Service reports whether it has the addresses that it requests. If a Service has the condition, the
	// addresses in its status come from pools.
	Condition = "clusterctl.local/AddressAssigned"
)

const (
	// Slots is the number of leases for addresses that any machine may announce. It is fixed, so that the cost of
	// renewals does not grow with the number of Services.
	Slots = 8
	// MaxLocal is the maximum number of addresses of Services with externalTrafficPolicy Local. Each has a lease of its
	// own.
	MaxLocal = 64
)

// Slot and LocalSlot return the names of leases in kube-system whose holders announce addresses.
func Slot(i int) string      { return fmt.Sprintf("load-balancer-%d", i) }
func LocalSlot(i int) string { return fmt.Sprintf("load-balancer-local-%d", i) }

// Leases returns the names of all these leases, since a role must list them.
func Leases() (names []string) {
	for i := range Slots {
		names = append(names, Slot(i))
	}
	for i := range MaxLocal {
		names = append(names, LocalSlot(i))
	}
	return names
}

// NeedsAddresses reports whether a Service should get addresses from pools.
func NeedsAddresses(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

// IsManaged reports whether the controller has handled a Service. Other controllers, for example a cloud's, handle
// Services too.
func IsManaged(s *corev1.Service) bool {
	return meta.FindStatusCondition(s.Status.Conditions, Condition) != nil
}

// PoolAddresses returns a Service's addresses from pools.
func PoolAddresses(s *corev1.Service) (all []netip.Addr) {
	if !IsManaged(s) {
		return nil
	}
	return Addresses(s)
}

// Addresses returns all addresses in a Service's status, no matter which controller assigned them.
func Addresses(s *corev1.Service) (all []netip.Addr) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// AnnouncedAddresses returns the addresses of a Service that machines announce.
func AnnouncedAddresses(s *corev1.Service) []netip.Addr {
	if !NeedsAddresses(s) {
		return nil
	}
	return PoolAddresses(s)
}

// Finalizer holds a Service until its addresses are released. It is upstream's.
const Finalizer = "service.kubernetes.io/load-balancer-cleanup"

// ParseList parses addresses separated by commas. bad is the first invalid one.
func ParseList(text string) (all []netip.Addr, bad string) {
	for _, one := range strings.Split(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		a, err := netip.ParseAddr(one)
		if err != nil {
			return nil, one
		}
		all = append(all, a.Unmap())
	}
	return all, ""
}
