package zone

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"clusterctl/daemons/dns/wire"
)

// Config configures a Zone.
type Config struct {
	Domain string // required; the cluster's domain
	// Networks of pods and services, for whose reverse names this server is authoritative.
	Networks []netip.Prefix
	Service  Key                     // the name server's service, whose addresses belong to the name ns.dns
	Hosts    map[string][]netip.Addr // addresses of names outside of the domain
	TTL      time.Duration           // TTL of records
	Serial   uint32                  // serial number of the zone
}

// Zone holds the names of a cluster. Its methods are safe for concurrent use.
type Zone struct {
	domain   []byte
	labels   int // number of labels of the domain
	networks []netip.Prefix
	server   string // key of the name server's service
	ttl      uint32
	ns       []byte
	soa      []byte
	hosts    map[string][2][]byte // by name in wire format: addresses of both families

	mu         sync.RWMutex
	services   map[string]*Service // by two labels in wire format
	namespaces map[string]bool     // by label
	names      map[netip.Addr][][]byte
}

// negativeTTL is how long clients may cache a negative answer, in seconds. It is short, because names may be queried
// before they exist.
const negativeTTL = 5

// New returns an empty zone.
func New(cfg Config) (*Zone, error) {
	domain, err := wire.Pack(cfg.Domain)
	if err != nil {
		return nil, err
	}
	var name wire.Name
	if _, err := name.Parse(domain); err != nil {
		return nil, err
	}
	z := &Zone{
		domain:     domain,
		labels:     name.Labels(),
		networks:   cfg.Networks,
		server:     labelKey(cfg.Service),
		ttl:        uint32(cfg.TTL / time.Second),
		hosts:      map[string][2][]byte{},
		services:   map[string]*Service{},
		namespaces: map[string]bool{},
		names:      map[netip.Addr][][]byte{},
	}
	z.ns = append([]byte("\x02ns\x03dns"), domain...)
	z.soa = append(slices.Clone(z.ns), "\x0ahostmaster"...)
	z.soa = append(z.soa, domain...)
	for _, n := range []uint32{cfg.Serial, 7200, 1800, 86400, negativeTTL} {
		z.soa = binary.BigEndian.AppendUint32(z.soa, n)
	}
	for _, text := range slices.Sorted(maps.Keys(cfg.Hosts)) {
		host, err := wire.Pack(text)
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", text, err)
		}
		var v4, v6 []byte
		for _, ip := range cfg.Hosts[text] {
			v4, v6 = appendAddress(v4, v6, ip)
			z.names[ip.Unmap()] = append(z.names[ip.Unmap()], host)
		}
		z.hosts[string(host)] = [2][]byte{v4, v6}
	}
	return z, nil
}

// labelKey returns a service's name and namespace as labels in wire format.
func labelKey(k Key) string {
	return string(append(append([]byte{byte(len(k.Name))}, k.Name...),
		append([]byte{byte(len(k.Namespace))}, k.Namespace...)...))
}

// Domain returns the cluster's domain in wire format.
func (z *Zone) Domain() []byte { return z.domain }

// SetNamespace sets whether a namespace exists.
func (z *Zone) SetNamespace(name string, exists bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if exists {
		z.namespaces[name] = true
	} else {
		delete(z.namespaces, name)
	}
}

// Set sets the records of a service. s is nil if the service does not exist.
func (z *Zone) Set(k Key, s *Service) {
	at := labelKey(k)
	z.mu.Lock()
	defer z.mu.Unlock()
	if old := z.services[at]; old != nil {
		for ip, removed := range old.pointers {
			// Readers may still use the old slice.
			left := slices.DeleteFunc(slices.Clone(z.names[ip]), func(n []byte) bool {
				return slices.ContainsFunc(removed, func(g []byte) bool { return bytes.Equal(n, g) })
			})
			if z.names[ip] = left; len(left) == 0 {
				delete(z.names, ip)
			}
		}
	}
	if s == nil {
		delete(z.services, at)
		return
	}
	z.services[at] = s
	for ip, names := range s.pointers {
		z.names[ip] = append(slices.Clone(z.names[ip]), names...)
	}
}

func (z *Zone) lookupService(labels []byte) *Service {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return z.services[string(labels)]
}

func (z *Zone) hasNamespace(label []byte) bool {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return z.namespaces[string(label)]
}

func (z *Zone) namesOf(ip netip.Addr) [][]byte {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return z.names[ip]
}
