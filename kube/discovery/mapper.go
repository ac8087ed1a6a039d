package discovery

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper maps kinds to resources using the discovery documents of an API server. It reads them on first use, and again
// after Reset. Group versions whose server does not respond are omitted. It is safe for concurrent use.
type Mapper struct {
	server Interface

	mu     sync.Mutex
	loaded meta.RESTMapper // nil until first used
}

var _ meta.ResettableRESTMapper = (*Mapper)(nil)

// NewMapper returns a mapper for a server.
func NewMapper(server Interface) *Mapper { return &Mapper{server: server} }

// Reset implements meta.ResettableRESTMapper.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = nil
}

func (m *Mapper) load() (meta.RESTMapper, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded != nil {
		return m.loaded, nil
	}
	groups, lists, err := m.server.ServerGroupsAndResources()
	if err != nil && len(lists) == 0 {
		return nil, err
	}
	m.loaded = newMapperOf(groups, lists)
	return m.loaded, nil
}

// newMapperOf returns a mapper that prefers the core group, then versions and groups in the order of the documents.
func newMapperOf(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) meta.RESTMapper {
	served := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		served[list.GroupVersion] = list
	}
	var each meta.MultiRESTMapper
	var preferred []schema.GroupVersion
	for _, group := range groups {
		for _, version := range preferredFirst(group) {
			list := served[version.GroupVersion]
			if list == nil {
				continue
			}
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			each, preferred = append(each, newVersionMapper(gv, list)), append(preferred, gv)
		}
	}
	for _, group := range groups {
		preferred = append(preferred, schema.GroupVersion{Group: group.Name, Version: meta.AnyVersion})
	}
	all := meta.PriorityRESTMapper{Delegate: each}
	for _, gv := range append([]schema.GroupVersion{{Version: "v1"}}, preferred...) {
		all.ResourcePriority = append(all.ResourcePriority, gv.WithResource(meta.AnyResource))
		all.KindPriority = append(all.KindPriority, gv.WithKind(meta.AnyKind))
	}
	return all
}

// preferredFirst returns a group's versions, the preferred one first.
func preferredFirst(group *metav1.APIGroup) []metav1.GroupVersionForDiscovery {
	var first, others []metav1.GroupVersionForDiscovery
	for _, v := range group.Versions {
		if v.Version == group.PreferredVersion.Version {
			first = append(first, v)
		} else {
			others = append(others, v)
		}
	}
	return append(first, others...)
}

func newVersionMapper(gv schema.GroupVersion, list *metav1.APIResourceList) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv})
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		singular := gv.WithResource(r.SingularName)
		if r.SingularName == "" {
			_, singular = meta.UnsafeGuessKindToResource(gv.WithKind(r.Kind))
		}
		m.AddSpecific(gv.WithKind(r.Kind), gv.WithResource(r.Name), singular, scope)
	}
	return m
}

// KindFor implements meta.RESTMapper.
func (m *Mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	mapper, err := m.load()
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return mapper.KindFor(resource)
}

// KindsFor implements meta.RESTMapper.
func (m *Mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	mapper, err := m.load()
	if err != nil {
		return nil, err
	}
	return mapper.KindsFor(resource)
}

// ResourceFor implements meta.RESTMapper.
func (m *Mapper) ResourceFor(partial schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	mapper, err := m.load()
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return mapper.ResourceFor(partial)
}

// ResourcesFor implements meta.RESTMapper.
func (m *Mapper) ResourcesFor(partial schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	mapper, err := m.load()
	if err != nil {
		return nil, err
	}
	return mapper.ResourcesFor(partial)
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapper, err := m.load()
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(kind, versions...)
}

// RESTMappings implements meta.RESTMapper.
func (m *Mapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	mapper, err := m.load()
	if err != nil {
		return nil, err
	}
	return mapper.RESTMappings(kind, versions...)
}

// ResourceSingularizer implements meta.RESTMapper.
func (m *Mapper) ResourceSingularizer(resource string) (string, error) {
	mapper, err := m.load()
	if err != nil {
		return resource, err
	}
	return mapper.ResourceSingularizer(resource)
}
