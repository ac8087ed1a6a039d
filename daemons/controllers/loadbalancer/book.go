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

// book says which Services have which addresses: those of their statuses, and those that this process has written into
// them and not yet seen.
type book struct {
	mu      sync.Mutex
	holders map[string]*holder                // by namespace/name
	has     map[netip.Addr]map[string]*holder // by address, then as holders
}

// holder is a Service that has addresses.
type holder struct {
	key     string
	uid     types.UID
	since   time.Time // of the Service
	space   string    // its namespace
	share   string    // what Services that share an address have in common; empty for one that shares none
	local   bool      // what comes stays on the machine that it comes to
	ports   []corev1.ServicePort
	selects map[string]string
	seen    []netip.Addr // in its status
	written []netip.Addr // nil when what was written has been seen
	maybe   []netip.Addr // written before that, which may be in the status that is seen next
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

// see takes in what a Service is, nil for one that has gone. It returns who shares an address with it, before or now,
// and whether an address has become free.
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

// write notes what is being written into the status of a Service, which has it from now on, whether or not the write
// succeeds.
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

// put replaces a holder. One without addresses is none.
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

// all are the addresses that nobody else may get.
func (h *holder) all() []netip.Addr {
	all := slices.Clone(h.seen)
	for _, a := range slices.Concat(h.written, h.maybe) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// given are the addresses that a Service has, those written last before those seen.
func (b *book) given(s *corev1.Service) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.holders[s.Namespace+"/"+s.Name]; h != nil && h.uid == s.UID && h.written != nil {
		return slices.Clone(h.written)
	}
	return loadbalancer.Addresses(s)
}

// any reports whether some Service has an address.
func (b *book) any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holders) > 0
}

// inTheWay returns a Service because of which another may not have an address, "" for none. A Service that has the
// address already gives way only to an older one, so that of two exactly one does. across reports whether namespaces may
// share the address; those that share it already go on.
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

// shared are the addresses that a Service may share with others that have them, sorted. across says of which namespaces
// may share it.
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

// free returns the first address of a range that nobody has.
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

// locals counts the addresses of other Services whose traffic stays on the machine that it comes to, but for those in a
// list.
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

// mayShare reports whether two Services may have one address: they say so, no port is of both, and what comes to the
// address can go where both want it to. Unless across, they are of one namespace: a key is no secret.
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
