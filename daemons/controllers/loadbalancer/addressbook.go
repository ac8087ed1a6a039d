package loadbalancer

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/loadbalancer"
)

// addressBook records which Services have which addresses: the addresses in their statuses, and those that this process
// wrote but has not observed yet.
type addressBook struct {
	mu        sync.Mutex
	holders   map[string]*holder                // by namespace/name
	byAddress map[netip.Addr]map[string]*holder // by address, then by the holder's key
}

// holder is a Service that has addresses.
type holder struct {
	key        string
	uid        types.UID
	created    time.Time // the Service's creation
	namespace  string    // the Service's namespace
	sharingKey string    // key that Services sharing an address have in common; empty means that it does not share
	isLocal    bool      // traffic stays on the machine that receives it (externalTrafficPolicy Local)
	ports      []corev1.ServicePort
	selector   map[string]string
	observed   []netip.Addr // addresses in its status
	written    []netip.Addr // addresses that this process wrote; nil once they have been observed
	previous   []netip.Addr // addresses written before those, which the next observed status may still have
}

func newAddressBook() *addressBook {
	return &addressBook{holders: map[string]*holder{}, byAddress: map[netip.Addr]map[string]*holder{}}
}

func holderOf(s *corev1.Service) *holder {
	return &holder{
		key:        s.Namespace + "/" + s.Name,
		uid:        s.UID,
		created:    s.CreationTimestamp.Time,
		namespace:  s.Namespace,
		sharingKey: s.Annotations[loadbalancer.ShareAnnotation],
		isLocal:    s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		ports:      s.Spec.Ports,
		selector:   s.Spec.Selector,
		observed:   loadbalancer.Addresses(s),
	}
}

// observe records the present state of a Service. updated is nil for a deleted Service. It returns the keys of the
// Services that share an address with it, before or now. freed reports whether an address has become free.
func (b *addressBook) observe(before, updated *corev1.Service) (others []string, freed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := updated
	if s == nil {
		s = before
	}
	key := s.Namespace + "/" + s.Name
	old := b.holders[key]
	var held []netip.Addr
	if old != nil {
		held = old.reserved()
	}
	if updated == nil {
		b.setHolder(key, nil)
	} else {
		h := holderOf(updated)
		if old != nil && old.uid == h.uid && old.written != nil && !slices.Equal(old.written, h.observed) {
			h.written, h.previous = old.written, old.previous
		}
		b.setHolder(key, h)
	}
	var holds []netip.Addr
	if h := b.holders[key]; h != nil {
		holds = h.reserved()
	}
	found := map[string]bool{}
	for _, a := range slices.Concat(held, holds) {
		for other := range b.byAddress[a] {
			if other != key {
				found[other] = true
			}
		}
	}
	for _, a := range held {
		freed = freed || !slices.Contains(holds, a)
	}
	return slices.Collect(maps.Keys(found)), freed
}

// recordWrite records the addresses that are being written to the status of a Service. The Service holds them from now
// on, even if the write fails.
func (b *addressBook) recordWrite(s *corev1.Service, addresses []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	if !slices.Equal(h.observed, addresses) {
		h.written = append([]netip.Addr{}, addresses...)
		if old := b.holders[h.key]; old != nil && old.uid == h.uid {
			h.previous = append(slices.Clone(old.previous), old.written...)
		}
	}
	b.setHolder(h.key, h)
}

// setHolder replaces the holder of a key. A holder without addresses is removed.
func (b *addressBook) setHolder(key string, h *holder) {
	if old := b.holders[key]; old != nil {
		for _, a := range old.reserved() {
			if delete(b.byAddress[a], key); len(b.byAddress[a]) == 0 {
				delete(b.byAddress, a)
			}
		}
		delete(b.holders, key)
	}
	if h == nil || len(h.reserved()) == 0 && h.written == nil {
		return
	}
	b.holders[key] = h
	for _, a := range h.reserved() {
		if b.byAddress[a] == nil {
			b.byAddress[a] = map[string]*holder{}
		}
		b.byAddress[a][key] = h
	}
}

// reserved returns the addresses that no other Service may get.
func (h *holder) reserved() []netip.Addr {
	all := slices.Clone(h.observed)
	for _, a := range slices.Concat(h.written, h.previous) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// addressesOf returns the addresses of a Service: those that this process wrote last, or else those of its status.
func (b *addressBook) addressesOf(s *corev1.Service) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.holders[s.Namespace+"/"+s.Name]; h != nil && h.uid == s.UID && h.written != nil {
		return slices.Clone(h.written)
	}
	return loadbalancer.Addresses(s)
}

// hasAddresses reports whether any Service has an address.
func (b *addressBook) hasAddresses() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holders) > 0
}

// conflictingService returns the key of a Service that prevents s from having an address, or "". A Service that already
// has the address gives way only to an older one, so that exactly one of two gets it. across reports whether Services
// of different namespaces may share the address. Those that already share it may continue.
func (b *addressBook) conflictingService(s *corev1.Service, a netip.Addr, hasIt, across bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	for _, key := range slices.Sorted(maps.Keys(b.byAddress[a])) {
		if other := b.byAddress[a][key]; key != h.key && !canShare(h, other, across || hasIt) &&
			(!hasIt || isOlder(other, h)) {
			return key
		}
	}
	return ""
}

// shareableAddresses returns the sorted addresses that a Service may share with their present holders. across reports
// for an address whether Services of different namespaces may share it.
func (b *addressBook) shareableAddresses(s *corev1.Service, across func(netip.Addr) bool) (all []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	if h.sharingKey == "" {
		return nil
	}
	for a, holders := range b.byAddress {
		if _, own := holders[h.key]; own {
			continue
		}
		allowed := true
		for _, other := range holders {
			allowed = allowed && canShare(h, other, across(a))
		}
		if allowed {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// firstFree returns the first address of a range that no Service holds.
func (b *addressBook) firstFree(first, last netip.Addr) (netip.Addr, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := first; a.IsValid() && !last.Less(a); a = a.Next() {
		if len(b.byAddress[a]) == 0 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// localAddressCount returns how many addresses of other Services have externalTrafficPolicy Local, not counting those
// in but.
func (b *addressBook) localAddressCount(s *corev1.Service, but []netip.Addr) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := s.Namespace + "/" + s.Name
	for a, holders := range b.byAddress {
		for other, h := range holders {
			if other != key && h.isLocal && !slices.Contains(but, a) {
				n++
				break
			}
		}
	}
	return n
}

func isOlder(a, b *holder) bool {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key, b.key)) < 0
}

// canShare reports whether two Services may share an address. Both must have the same sharing key and no port in
// common. If one has externalTrafficPolicy Local, both must select the same pods. Unless across, both must be in the
// same namespace, because sharing keys are not secret.
func canShare(a, b *holder, across bool) bool {
	if a.sharingKey == "" || a.sharingKey != b.sharingKey || !across && a.namespace != b.namespace {
		return false
	}
	for _, p := range a.ports {
		if slices.ContainsFunc(b.ports,
			func(o corev1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
			return false
		}
	}
	return !a.isLocal && !b.isLocal || a.namespace == b.namespace && len(a.selector) > 0 &&
		maps.Equal(a.selector, b.selector)
}
