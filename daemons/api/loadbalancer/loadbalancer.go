// Package loadbalancer is what the service controller and the machines' network daemons have to agree on about Services
// of type LoadBalancer: whose Services they are, and which of their addresses the machines announce. What there is to
// give out is in daemons/config.
package loadbalancer

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const (
	// Class is the loadBalancerClass of Services that get an address of a pool, besides those that have none.
	Class = "clusterctl.local/pool"
	// PoolAnnotation of a Service is the name of the pool that its addresses are to be of.
	PoolAnnotation = "clusterctl.local/load-balancer-pool"
	// AddressesAnnotation of a Service is the addresses that it is to have, with commas between them.
	AddressesAnnotation = "clusterctl.local/load-balancer-ips"
	// ShareAnnotation of Services that may have one address has the same value.
	ShareAnnotation = "clusterctl.local/allow-shared-address"
	// Condition of a Service reports whether it has the addresses that it asks for. Where it is, the addresses of its
	// status are of pools.
	Condition = "clusterctl.local/AddressAssigned"
)

const (
	// Slots is how many leases there are for addresses that any machine may have, so that what renewals cost does not
	// grow with Services.
	Slots = 8
	// MaxLocal is how many addresses Services with externalTrafficPolicy Local may have. Each has a lease of its own.
	MaxLocal = 64
)

// Slot and LocalSlot are the names of the leases in kube-system whose holders announce addresses.
func Slot(i int) string      { return fmt.Sprintf("load-balancer-%d", i) }
func LocalSlot(i int) string { return fmt.Sprintf("load-balancer-local-%d", i) }

// Leases are the names of all of them: a role has to name what it is for.
func Leases() (names []string) {
	for i := range Slots {
		names = append(names, Slot(i))
	}
	for i := range MaxLocal {
		names = append(names, LocalSlot(i))
	}
	return names
}

// Wants reports whether a Service is to have addresses of a pool.
func Wants(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

// Known reports whether the controller has looked after a Service. Others, a cloud's controller among them, look after
// Services too.
func Known(s *corev1.Service) bool {
	return meta.FindStatusCondition(s.Status.Conditions, Condition) != nil
}

// Given are the addresses of pools that a Service has.
func Given(s *corev1.Service) (all []netip.Addr) {
	if !Known(s) {
		return nil
	}
	return Addresses(s)
}

// Addresses are all that a Service's status has, whoever gave them.
func Addresses(s *corev1.Service) (all []netip.Addr) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// Announced are the addresses of a Service that machines announce.
func Announced(s *corev1.Service) []netip.Addr {
	if !Wants(s) {
		return nil
	}
	return Given(s)
}

// Finalizer keeps a Service until its addresses have been taken back: upstream's.
const Finalizer = "service.kubernetes.io/load-balancer-cleanup"

// List reads addresses with commas between them.
func List(text string) (all []netip.Addr, bad string) {
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
