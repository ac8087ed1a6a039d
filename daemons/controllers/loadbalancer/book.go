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

// book records which Services have which addresses: the addresses in their statuses, and those that this process wrote
// but has not observed yet.
type book struct {
	mu      sync.Mutex
	holders map[string]*holder                // by namespace/name
	has     map[netip.Addr]map[string]*holder // by address, then by the holder's key
}

// holder is a Service that has addresses.
type holder struct {
	key     string
	uid     types.UID
	since   time.Time // the Service's creation
	space   string    // the Service's namespace
	share   string    // key that Services sharing an address have in common; empty means that it does not share
	local   bool      // traffic stays on the machine that receives it (externalTrafficPolicy Local)
	ports   []corev1.ServicePort
	selects map[string]string
	seen    []netip.Addr // addresses in its status
	written []netip.Addr // addresses that this process wrote; nil once they have been observed
	maybe   []netip.Addr // addresses written before those, which the next observed status may still have
}

func newBook() *book {
	return &book{holders: map[string]*holder{}, has: map[netip.Addr]map[string]*holder{}}
}

func holderOf(s *corev1.Service) *holder {
	return &holder{
		key:     s.Namespace + "/" + s.Name,
		uid:     s.UID,
		since:   s.CreationTimestamp.Time,
		space:   s.Namespace,
		share:   s.Annotations[loadbalancer.ShareAnnotation],
		local:   s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		ports:   s.Spec.Ports,
		selects: s.Spec.Selector,
		seen:    loadbalancer.Addresses(s),
	}
}

// see records the present state of a Service. is is nil for a deleted one. It returns the keys of the Services that
// share an address with it, before or now. freed reports whether an address has become free.
func (b *book) see(was, is *corev1.Service) (others []string, freed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := is
	if s == nil {
		s = was
	}
	key := s.Namespace + "/" + s.Name
	old := b.holders[key]
	var held []netip.Addr
	if old != nil {
		held = old.all()
	}
	if is == nil {
		b.put(key, nil)
	} else {
		h := holderOf(is)
		if old != nil && old.uid == h.uid && old.written != nil && !slices.Equal(old.written, h.seen) {
			h.written, h.maybe = old.written, old.maybe
		}
		b.put(key, h)
	}
	var holds []netip.Addr
	if h := b.holders[key]; h != nil {
		holds = h.all()
	}
	found := map[string]bool{}
	for _, a := range slices.Concat(held, holds) {
		for other := range b.has[a] {
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

// write records the addresses that are being written to the status of a Service. The Service holds them from now on,
// even if the write fails.
func (b *book) write(s *corev1.Service, addresses []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	if !slices.Equal(h.seen, addresses) {
		h.written = append([]netip.Addr{}, addresses...)
		if old := b.holders[h.key]; old != nil && old.uid == h.uid {
			h.maybe = append(slices.Clone(old.maybe), old.written...)
		}
	}
	b.put(h.key, h)
}

// put replaces the holder of a key. A holder without addresses is removed.
func (b *book) put(key string, h *holder) {
	if old := b.holders[key]; old != nil {
		for _, a := range old.all() {
			if delete(b.has[a], key); len(b.has[a]) == 0 {
				delete(b.has, a)
			}
		}
		delete(b.holders, key)
	}
	if h == nil || len(h.all()) == 0 && h.written == nil {
		return
	}
	b.holders[key] = h
	for _, a := range h.all() {
		if b.has[a] == nil {
			b.has[a] = map[string]*holder{}
		}
		b.has[a][key] = h
	}
}

// all returns the addresses that no other Service may get.
func (h *holder) all() []netip.Addr {
	all := slices.Clone(h.seen)
	for _, a := range slices.Concat(h.written, h.maybe) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// given returns the addresses of a Service: those that this process wrote last, or else those of its status.
func (b *book) given(s *corev1.Service) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.holders[s.Namespace+"/"+s.Name]; h != nil && h.uid == s.UID && h.written != nil {
		return slices.Clone(h.written)
	}
	return loadbalancer.Addresses(s)
}

// any reports whether any Service has an address.
func (b *book) any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holders) > 0
}

// inTheWay returns the key of a Service that prevents s from having an address, or "". A Service that already has the
// address gives way only to an older one, so that exactly one of two gets it. across reports whether Services of
// different namespaces may share the address. Those that already share it may continue.
func (b *book) inTheWay(s *corev1.Service, a netip.Addr, hasIt, across bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	for _, key := range slices.Sorted(maps.Keys(b.has[a])) {
		if other := b.has[a][key]; key != h.key && !mayShare(h, other, across || hasIt) && (!hasIt || older(other, h)) {
			return key
		}
	}
	return ""
}

// shared returns the sorted addresses that a Service may share with their present holders. across reports for an
// address whether Services of different namespaces may share it.
func (b *book) shared(s *corev1.Service, across func(netip.Addr) bool) (all []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := holderOf(s)
	if h.share == "" {
		return nil
	}
	for a, holders := range b.has {
		if _, own := holders[h.key]; own {
			continue
		}
		may := true
		for _, other := range holders {
			may = may && mayShare(h, other, across(a))
		}
		if may {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// free returns the first address of a range that no Service holds.
func (b *book) free(first, last netip.Addr) (netip.Addr, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := first; a.IsValid() && !last.Less(a); a = a.Next() {
		if len(b.has[a]) == 0 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// locals returns how many addresses of other Services have externalTrafficPolicy Local, not counting those in but.
func (b *book) locals(s *corev1.Service, but []netip.Addr) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := s.Namespace + "/" + s.Name
	for a, holders := range b.has {
		for other, h := range holders {
			if other != key && h.local && !slices.Contains(but, a) {
				n++
				break
			}
		}
	}
	return n
}

func older(a, b *holder) bool {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) < 0
}

// mayShare reports whether two Services may share an address. Both must have the same sharing key and no port in
// common. If one has externalTrafficPolicy Local, both must select the same pods. Unless across, both must be in the
// same namespace, because sharing keys are not secret.
func mayShare(a, b *holder, across bool) bool {
	if a.share == "" || a.share != b.share || !across && a.space != b.space {
		return false
	}
	for _, p := range a.ports {
		if slices.ContainsFunc(
			b.ports,
			func(o corev1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol },
		) {
			return false
		}
	}
	return !a.local && !b.local || a.space == b.space && len(a.selects) > 0 && maps.Equal(a.selects, b.selects)
}
