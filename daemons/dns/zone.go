package dns

import (
	"net/netip"
	"slices"
	"sync"
)

// Records is a Zone in memory.
type Records struct {
	domain string

	mu         sync.RWMutex
	services   map[Key]*Service
	namespaces map[string]bool
	names      map[netip.Addr][]string
}

var _ Zone = (*Records)(nil)

// NewRecords returns an empty zone of a domain that ends in a dot.
func NewRecords(domain string) *Records {
	return &Records{domain: domain, services: map[Key]*Service{}, namespaces: map[string]bool{}, names: map[netip.Addr][]string{}}
}

// Service implements Zone.
func (r *Records) Service(k Key) *Service {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.services[k]
}

// HasNamespace implements Zone.
func (r *Records) HasNamespace(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.namespaces[name]
}

// Reverse implements Zone.
func (r *Records) Reverse(ip netip.Addr) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.names[ip]
}

// SetNamespace says whether there is a namespace.
func (r *Records) SetNamespace(name string, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there {
		r.namespaces[name] = true
	} else {
		delete(r.namespaces, name)
	}
}

// Set replaces what is known of a service; nil means that there is none.
func (r *Records) Set(k Key, s *Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ip, name := range r.reverseOf(k, r.services[k]) {
		r.names[ip] = slices.DeleteFunc(slices.Clone(r.names[ip]), func(n string) bool { return n == name })
		if len(r.names[ip]) == 0 {
			delete(r.names, ip)
		}
	}
	if s == nil {
		delete(r.services, k)
		return
	}
	r.services[k] = s
	for ip, name := range r.reverseOf(k, s) {
		// Readers keep the slice that they were given.
		r.names[ip] = append(slices.Clone(r.names[ip]), name)
	}
}

// reverseOf returns the names that a service gives to addresses.
func (r *Records) reverseOf(k Key, s *Service) map[netip.Addr]string {
	if s == nil {
		return nil
	}
	full := k.Name + "." + k.Namespace + ".svc." + r.domain
	names := map[netip.Addr]string{}
	for _, ip := range s.ClusterIPs {
		names[ip] = full
	}
	for _, e := range s.Endpoints {
		names[e.Addr] = e.Host + "." + full
	}
	return names
}
