// Package alloc allocates service addresses and node ports. A claim is a key in the store, written in the same
// transaction as the Service. So several API servers never allocate the same one twice. The watch cache only suggests
// what is free.
package alloc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Services allocates addresses and ports for Services.
type Services struct {
	cache               *cache.Cache
	addresses           *cache.Resource // IPAddress objects
	services            *cache.Resource
	serviceCIDRs        *cache.Resource // ServiceCIDR objects
	networks            []netip.Prefix  // the server's own networks
	firstPort, lastPort int             // range of node ports
}

var (
	addressKind = networkingv1.SchemeGroupVersion.WithKind("IPAddress")
	addressesGR = schema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}
	servicesGR  = schema.GroupResource{Resource: "services"}
)

// portKind is the kind of the keys that claim node ports. No other kind has these keys.
var portKind = &kinds.Kind{Resource: "servicenodeports", StorageKey: "ranges/servicenodeports"}

// NewServices returns an allocator for networks (CIDRs) and a range of node ports (first-last).
func NewServices(c *cache.Cache, cidrs []string, ports string) (*Services, error) {
	a := &Services{
		cache:        c,
		addresses:    c.Resource(addressesGR),
		services:     c.Resource(servicesGR),
		serviceCIDRs: c.Resource(rangesGR),
		firstPort:    30000,
		lastPort:     32767,
	}
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("read the service network %q: %w", cidr, err)
		}
		a.networks = append(a.networks, p.Masked())
	}
	if ports != "" {
		first, last, ok := strings.Cut(ports, "-")
		var err error
		if a.firstPort, err = strconv.Atoi(first); !ok || err != nil {
			return nil, fmt.Errorf("read the node port range %q: want first-last", ports)
		}
		if a.lastPort, err = strconv.Atoi(last); err != nil || a.lastPort < a.firstPort || a.firstPort < 1 ||
			a.lastPort > 65535 {
			return nil, fmt.Errorf("read the node port range %q: want first-last", ports)
		}
	}
	return a, nil
}

// Networks returns the server's own networks.
func (a *Services) Networks() []string {
	var all []string
	for _, n := range a.networks {
		all = append(all, n.String())
	}
	return all
}

// FirstAddress returns the first address of the first network, which belongs to the kubernetes service.
func (a *Services) FirstAddress() string { return a.networks[0].Addr().Next().String() }

// Allocate sets the addresses and ports that a Service needs, and claims them in txn together with those that the
// Service requests. It releases those of old that are not needed any more. old is nil for a new Service.
func (a *Services) Allocate(svc, old *corev1.Service, txn *store.Txn) error {
	if err := a.allocateAddresses(svc, old, txn); err != nil {
		return err
	}
	return a.allocatePorts(svc, old, txn)
}

// Release releases all addresses and ports of a Service.
func (a *Services) Release(svc *corev1.Service, txn *store.Txn) {
	for _, address := range addressesOf(svc) {
		txn.Deletes = append(txn.Deletes, a.addressKey(address))
	}
	for port := range portsOf(svc) {
		txn.Deletes = append(txn.Deletes, a.portKey(port))
	}
}

func needsAddress(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

func addressesOf(svc *corev1.Service) []string {
	if !needsAddress(svc) {
		return nil
	}
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	if svc.Spec.ClusterIP != "" {
		return []string{svc.Spec.ClusterIP}
	}
	return nil
}

// chooseFamilies sets the IP families of a Service, in order.
func (a *Services) chooseFamilies(svc *corev1.Service) ([]corev1.IPFamily, error) {
	if svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0 {
		a.chooseHeadlessFamilies(svc)
		return nil, nil
	}
	var order []corev1.IPFamily
	for _, n := range a.networks {
		if f := familyOf(n.Addr()); !slices.Contains(order, f) {
			order = append(order, f)
		}
	}
	policy := corev1.IPFamilyPolicySingleStack
	if svc.Spec.IPFamilyPolicy != nil {
		policy = *svc.Spec.IPFamilyPolicy
	}
	want := svc.Spec.IPFamilies
	if len(want) == 0 {
		for _, ip := range addressesOf(svc) {
			if addr, err := netip.ParseAddr(ip); err == nil {
				want = append(want, familyOf(addr))
			}
		}
	}
	if len(want) == 0 {
		want = order[:1]
	}
	if policy != corev1.IPFamilyPolicySingleStack {
		for _, f := range order {
			if f != want[0] && len(want) == 1 {
				want = append(want, f)
			}
		}
	} else if len(want) > 1 {
		want = want[:1]
	}
	if policy == corev1.IPFamilyPolicyRequireDualStack && len(want) < 2 {
		return nil, invalidError(svc, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), policy,
			"this cluster is not configured for dual-stack services"))
	}
	for _, f := range want {
		if !slices.Contains(order, f) {
			return nil, invalidError(svc, field.Invalid(field.NewPath("spec", "ipFamilies"), f,
				"not configured on this cluster"))
		}
	}
	svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = want, &policy
	return want, nil
}

// chooseHeadlessFamilies sets the families of a headless service without a selector. Its endpoints are written by
// users, and may have any addresses. So it has both families unless it specifies otherwise.
func (a *Services) chooseHeadlessFamilies(svc *corev1.Service) {
	if svc.Spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicyRequireDualStack
		svc.Spec.IPFamilyPolicy = &policy
	}
	if len(svc.Spec.IPFamilies) == 0 {
		svc.Spec.IPFamilies = []corev1.IPFamily{familyOf(a.networks[0].Addr())}
	}
	if len(svc.Spec.IPFamilies) == 1 && *svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		other := corev1.IPv4Protocol
		if svc.Spec.IPFamilies[0] == corev1.IPv4Protocol {
			other = corev1.IPv6Protocol
		}
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, other)
	}
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func invalidError(svc *corev1.Service, e *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, svc.Name, field.ErrorList{e})
}

func (a *Services) allocateAddresses(svc, old *corev1.Service, txn *store.Txn) error {
	before := map[string]bool{}
	if old != nil {
		for _, ip := range addressesOf(old) {
			before[ip] = true
		}
		// An update without an address keeps the old one.
		if needsAddress(svc) && needsAddress(old) && svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
		}
	}
	if !needsAddress(svc) {
		if svc.Spec.Type == corev1.ServiceTypeExternalName {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = "", nil, nil, nil
		} else {
			svc.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
			if _, err := a.chooseFamilies(svc); err != nil {
				return err
			}
		}
	} else {
		families, err := a.chooseFamilies(svc)
		if err != nil {
			return err
		}
		given := addressesOf(svc)
		var existing []string
		for i, family := range families {
			if i < len(given) && before[given[i]] { // even if the range allocates no more addresses
				existing = append(existing, given[i])
				delete(before, given[i])
				continue
			}
			ranges, err := a.ranges(family)
			if err != nil {
				return apierrors.NewInternalError(err)
			}
			var ip string
			var of addressRange
			if i < len(given) && given[i] != "" {
				ip, of, err = a.checkRequested(svc, given[i], ranges)
			} else {
				ip, of, err = a.findFree(ranges)
			}
			if err != nil {
				return err
			}
			existing = append(existing, ip)
			if err := a.claimAddress(svc, ip, of, txn); err != nil {
				return err
			}
		}
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = existing[0], existing
	}
	for ip := range before {
		txn.Deletes = append(txn.Deletes, a.addressKey(ip))
	}
	return nil
}

// checkRequested checks an address that a Service requests.
func (a *Services) checkRequested(svc *corev1.Service, text string, ranges []addressRange) (string,
	addressRange, error) {
	refuse := func(value any, format string, args ...any) (string, addressRange, error) {
		return "", addressRange{}, invalidError(svc, field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), value,
			fmt.Sprintf(format, args...)))
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return refuse(text, "must be an address")
	}
	in := slices.IndexFunc(ranges, func(r addressRange) bool { return r.network.Contains(addr) })
	if in < 0 {
		return refuse(svc.Spec.ClusterIPs,
			"failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s",
			text, text, joinRanges(ranges))
	}
	taken, err := a.isClaimedByOther(addr.String(), svc)
	if err != nil {
		return "", addressRange{}, apierrors.NewInternalError(err)
	}
	if taken {
		return refuse(svc.Spec.ClusterIPs, "failed to allocate IP %s: provided IP is already allocated", text)
	}
	return addr.String(), ranges[in], nil
}

// isClaimedByOther reports whether an address is claimed for another Service.
func (a *Services) isClaimedByOther(ip string, svc *corev1.Service) (bool, error) {
	if a.addresses == nil {
		return false, nil
	}
	if err := a.addresses.ReadError(ip); err != nil {
		return false, err
	}
	e := a.addresses.Get(ip)
	if e == nil {
		return false, nil
	}
	obj, err := e.Object()
	if err != nil {
		return false, err
	}
	claim, ok := obj.(*networkingv1.IPAddress)
	return ok &&
		(claim.Spec.ParentRef == nil || claim.Spec.ParentRef.Namespace != svc.Namespace ||
			claim.Spec.ParentRef.Name != svc.Name), nil
}

// randomAttempts is how many random addresses are tried before all addresses in order.
const randomAttempts = 32

// findFree returns an address that appears to be free, from the first range that has one.
func (a *Services) findFree(ranges []addressRange) (string, addressRange, error) {
	for _, r := range ranges {
		if ip := a.freeAddressIn(r.network); ip != "" {
			return ip, r, nil
		}
	}
	cause := errors.New("failed to allocate a serviceIP: no ServiceCIDR is ready")
	if len(ranges) > 0 {
		cause = fmt.Errorf("failed to allocate a serviceIP: range %s is full", joinRanges(ranges))
	}
	return "", addressRange{}, apierrors.NewInternalError(cause)
}

// freeAddressIn returns a free address at random, so that servers seldom choose the same one; "" if there is none. Like
// upstream, it leaves the first sixteenth (at most 256) to Services that request a certain address.
func (a *Services) freeAddressIn(network netip.Prefix) string {
	bits := network.Addr().BitLen() - network.Bits()
	size := uint64(1) << min(bits, 32)
	if size <= 2 { // a network of one or two addresses has none to allocate
		return ""
	}
	reserved := min(max(size/16, 16), 256)
	if size <= 2*reserved {
		reserved = 1
	}
	last := size - 1
	if network.Addr().Is4() {
		last-- // the broadcast address
	}
	first := uint64(1)
	if network == a.networks[0] {
		first = 2 // the first one belongs to the kubernetes service
	}
	reserved = max(reserved, first)
	taken := func(n uint64) (string, bool) {
		ip := addressAt(network.Addr(), n).String()
		return ip, a.addresses != nil && a.addresses.Get(ip) != nil
	}
	for range randomAttempts {
		if last < reserved {
			break
		}
		if ip, used := taken(reserved + rand.Uint64N(last-reserved+1)); !used {
			return ip
		}
	}
	for n := last; n >= first; n-- {
		if ip, used := taken(n); !used {
			return ip
		}
	}
	return ""
}

func addressAt(base netip.Addr, n uint64) netip.Addr {
	b := base.As16()
	for i := 15; i >= 0 && n > 0; i-- {
		n += uint64(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	addr := netip.AddrFrom16(b)
	if base.Is4() {
		return addr.Unmap()
	}
	return addr
}

func (a *Services) addressKey(ip string) string {
	if a.addresses != nil {
		return a.cache.Key(a.addresses.Kind, ip)
	}
	return a.cache.Key(&kinds.Kind{Resource: "ipaddresses"}, ip)
}

func (a *Services) claimAddress(svc *corev1.Service, ip string, of addressRange, txn *store.Txn) error {
	family := familyOf(netip.MustParseAddr(ip))
	claim := &networkingv1.IPAddress{
		TypeMeta: metav1.TypeMeta{APIVersion: addressKind.GroupVersion().String(), Kind: addressKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: ip, UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(family),
				networkingv1.LabelManagedBy:       managedBy,
			},
		},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: svc.Namespace, Name: svc.Name},
		},
	}
	data, err := json.Marshal(claim)
	if err != nil {
		return fmt.Errorf("claim the address %s: %w", ip, err)
	}
	key := a.addressKey(ip)
	txn.Guards = append(txn.Guards, store.Guard{Key: key})
	if of.guard.Key != "" {
		txn.Guards = append(txn.Guards, of.guard)
	}
	txn.Puts = append(txn.Puts, store.Put{Key: key, Value: data})
	return nil
}
