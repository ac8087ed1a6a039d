package route

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Backends holds the backends that rules use, and updates their endpoints.
type Backends struct {
	targets   func(BackendKey) Targets
	backends  map[BackendKey]*Backend
	byService map[Key]map[BackendKey]*Backend
	services  map[Key]*corev1.Service
	slices    map[Key][]*discoveryv1.EndpointSlice
}

// NewBackends returns empty Backends. targets is called once for each backend that comes into use.
func NewBackends(targets func(BackendKey) Targets) *Backends {
	return &Backends{
		targets: targets, backends: map[BackendKey]*Backend{}, byService: map[Key]map[BackendKey]*Backend{},
		services: map[Key]*corev1.Service{}, slices: map[Key][]*discoveryv1.EndpointSlice{},
	}
}

// Service returns a service, or nil.
func (b *Backends) Service(key Key) *corev1.Service { return b.services[key] }

// SetService sets a service. s is nil if the service was deleted.
func (b *Backends) SetService(key Key, s *corev1.Service) {
	if s == nil {
		delete(b.services, key)
	} else {
		b.services[key] = s
	}
	b.update(key)
}

// SetSlices sets all slices of a service.
func (b *Backends) SetSlices(service Key, all []*discoveryv1.EndpointSlice) {
	if len(all) == 0 {
		delete(b.slices, service)
	} else {
		b.slices[service] = all
	}
	b.update(service)
}

// Use returns the backend of a key, and counts the use.
func (b *Backends) Use(key BackendKey) *Backend {
	backend := b.backends[key]
	if backend == nil {
		backend = &Backend{Key: key, Targets: b.targets(key)}
		b.backends[key] = backend
		putNested(b.byService, key.Service, key, backend)
		backend.Targets.Update(Endpoints(b.services[key.Service], b.slices[key.Service], key.Port))
	}
	backend.useCount++
	return backend
}

// Release ends a use. The last one closes the backend.
func (b *Backends) Release(backend *Backend) {
	if backend.useCount--; backend.useCount > 0 {
		return
	}
	delete(b.backends, backend.Key)
	deleteNested(b.byService, backend.Key.Service, backend.Key)
	backend.Targets.Close()
}

// update updates the endpoints of a service's backends.
func (b *Backends) update(service Key) {
	for key, backend := range b.byService[service] {
		backend.Targets.Update(Endpoints(b.services[service], b.slices[service], key.Port))
	}
}
