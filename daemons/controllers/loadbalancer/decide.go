package loadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/config"
)

// decision holds the addresses that a Service should have.
type decision struct {
	addresses []netip.Addr // at most one per family, in the order of the Service's families
	withdrawn []netip.Addr // addresses that are in no pool any more
	problem   string       // why it does not get what it asks for; it retains the addresses that it has
	isWaiting bool         // it waits for an address to become free
}

// decide computes the addresses of a Service. The Service retains an address that is in a pool, unless it asks for
// another. pools are sorted by name.
func decide(s *corev1.Service, pools []config.Pool, b *addressBook) (d decision) {
	requests, problem := requestedAddresses(s)
	d.problem = problem
	current := map[bool]netip.Addr{} // the key is whether the address is IPv4
	for _, a := range b.addressesOf(s) {
		switch {
		case poolOf(pools, a) == nil:
			d.withdrawn = append(d.withdrawn, a)
		case b.conflictingService(s, a, true, true) == "":
			current[a.Is4()] = a
		}
	}
	c := addressChoice{s, pools, b}
	policy := corev1.IPFamilyPolicySingleStack
	if s.Spec.IPFamilyPolicy != nil {
		policy = *s.Spec.IPFamilyPolicy
	}
	var keeps, gets []netip.Addr
	missing := "" // why an optional family has no address
	for _, f := range s.Spec.IPFamilies {
		is4 := f != corev1.IPv6Protocol
		holder, existed := current[is4]
		if existed {
			keeps = append(keeps, holder)
		}
		if problem != "" {
			continue
		}
		switch a, reason := c.choose(is4, requests[is4], holder); {
		case reason == "":
			gets = append(gets, a)
			continue
		case requests[is4].IsValid() || policy != corev1.IPFamilyPolicyPreferDualStack:
			d.problem = cmp.Or(d.problem, reason)
		default:
			missing = cmp.Or(missing, reason)
		}
		if existed {
			gets = append(gets, holder)
		}
	}
	if len(gets) == 0 {
		d.problem = cmp.Or(d.problem, missing)
	}
	d.addresses, d.isWaiting = gets, d.problem != "" || missing != ""
	if n := len(gets); s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && n > 0 &&
		b.localAddressCount(s, gets)+n > loadbalancer.MaxLocal {
		d.problem, d.addresses, d.isWaiting = fmt.Sprintf(
			"%d addresses are of services with externalTrafficPolicy Local, and no more are announced",
			loadbalancer.MaxLocal), keeps, true
	}
	if problem != "" || d.problem != "" && policy == corev1.IPFamilyPolicyRequireDualStack {
		d.addresses = keeps // either both families or no new address; existing ones stay
	}
	return d
}

// requestedAddresses returns the addresses that a Service asks for. The key is whether the address is IPv4.
func requestedAddresses(s *corev1.Service) (requests map[bool]netip.Addr, problem string) {
	requests = map[bool]netip.Addr{}
	for _, from := range []struct{ name, text string }{
		{"spec.loadBalancerIP", s.Spec.LoadBalancerIP},
		{"annotation " + loadbalancer.AddressesAnnotation, s.Annotations[loadbalancer.AddressesAnnotation]},
	} {
		list, bad := loadbalancer.ParseList(from.text)
		if bad != "" {
			return nil, fmt.Sprintf("%s has %q, which is not an IP address", from.name, bad)
		}
		for _, a := range list {
			family := corev1.IPv6Protocol
			if a.Is4() {
				family = corev1.IPv4Protocol
			}
			if !slices.Contains(s.Spec.IPFamilies, family) {
				return nil, fmt.Sprintf("%s asks for %s, and the service is not of %s", from.name, a, family)
			}
			if other, twice := requests[a.Is4()]; twice && other != a {
				return nil, fmt.Sprintf("both %s and %s are asked for; a service has one address of each family", other,
					a)
			}
			requests[a.Is4()] = a
		}
	}
	return requests, ""
}

func poolOf(pools []config.Pool, a netip.Addr) *config.Pool {
	for i := range pools {
		if pools[i].Contains(a) {
			return &pools[i]
		}
	}
	return nil
}

// allowsCrossNamespace reports whether Services of different namespaces may share an address of a pool.
func allowsCrossNamespace(pool *config.Pool) bool {
	return pool != nil && pool.ShareBetweenNamespaces != nil && *pool.ShareBetweenNamespaces
}

// addressChoice selects an address from pools for one Service.
type addressChoice struct {
	s     *corev1.Service
	pools []config.Pool
	book  *addressBook
}

// choose returns the address of a family, or a message why there is none. addr and current may be invalid, which means
// none.
func (c addressChoice) choose(is4 bool, addr, current netip.Addr) (a netip.Addr, problem string) {
	name := c.s.Annotations[loadbalancer.PoolAnnotation]
	if name != "" && !slices.ContainsFunc(c.pools, func(p config.Pool) bool { return p.Name == name }) {
		return a, fmt.Sprintf("there is no pool %q", name)
	}
	if addr.IsValid() {
		return addr, c.refusalReason(addr, addr == current, name)
	}
	if current.IsValid() && (name == "" || poolOf(c.pools, current).Name == name) {
		return current, ""
	}
	var open []config.Pool
	for _, pool := range c.pools {
		auto := pool.AutoAssign == nil || *pool.AutoAssign
		if (pool.Name == name || name == "" && auto) && pool.Serves(c.s.Namespace) &&
			slices.ContainsFunc(pool.Ranges, func(r config.Range) bool { return r.First.Is4() == is4 }) {
			open = append(open, pool)
		}
	}
	family := "IPv6"
	if is4 {
		family = "IPv4"
	}
	if len(open) == 0 {
		if name != "" {
			return a, fmt.Sprintf("pool %q has no %s addresses for namespace %s", name, family, c.s.Namespace)
		}
		return a, fmt.Sprintf("no pool has %s addresses for namespace %s", family, c.s.Namespace)
	}
	for _, a := range c.book.shareableAddresses(c.s,
		func(a netip.Addr) bool { return allowsCrossNamespace(poolOf(open, a)) }) {
		if p := poolOf(open, a); p != nil && a.Is4() == is4 {
			return a, ""
		}
	}
	var names []string
	for _, pool := range open {
		names = append(names, pool.Name)
		for _, r := range pool.Ranges {
			if r.First.Is4() != is4 {
				continue
			}
			if a, ok := c.book.firstFree(r.First, r.Last); ok {
				return a, ""
			}
		}
	}
	return a, fmt.Sprintf("all %s addresses of %s are in use", family, strings.Join(names, ", "))
}

// refusalReason returns why a Service cannot have an address that it asks for, or "" if it can.
func (c addressChoice) refusalReason(a netip.Addr, hasIt bool, name string) string {
	p := poolOf(c.pools, a)
	switch {
	case p == nil:
		return fmt.Sprintf("%s is of no pool", a)
	case name != "" && p.Name != name:
		return fmt.Sprintf("%s is of pool %q, and pool %q is asked for", a, p.Name, name)
	case !hasIt && !p.Serves(c.s.Namespace):
		return fmt.Sprintf("%s is of pool %q, which is not for namespace %s", a, p.Name, c.s.Namespace)
	}
	across := allowsCrossNamespace(p)
	if other := c.book.conflictingService(c.s, a, hasIt, across); other != "" {
		if !across && c.book.conflictingService(c.s, a, hasIt, true) == "" {
			return fmt.Sprintf("%s is in use by service %s, and pool %q lets services of one namespace "+
				"alone share an address", a, other, p.Name)
		}
		return fmt.Sprintf("%s is in use by service %s", a, other)
	}
	return ""
}
