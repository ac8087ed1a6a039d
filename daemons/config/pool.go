package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// PoolsName is the ConfigMap in kube-system with the address pools for Services of type LoadBalancer. Each key of its
// data is the name of a pool, and each value a Pool as JSON.
const PoolsName = "load-balancer-pools"

// NoPoolsAnnotation with the value "true" on that ConfigMap means that there are no pools. A ConfigMap that is missing,
// or that is empty without this annotation, changes nothing: Services retain their addresses.
const NoPoolsAnnotation = "clusterctl.local/no-load-balancer-pools"

// Pool is a set of addresses for Services of type LoadBalancer.
type Pool struct {
	Name      string   `json:"-"`
	Addresses []string `json:"addresses"` // in the format of ReadRange
	// AutoAssign means that Services get an address even if they name neither a pool nor an address. nil means true.
	AutoAssign *bool    `json:"autoAssign,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"` // namespaces whose Services may use the pool; empty means all
	// Interfaces are the interfaces of the machines on which the addresses are announced. Empty means the interface of
	// the addresses' network.
	Interfaces []string `json:"interfaces,omitempty"`
	// ShareBetweenNamespaces allows Services of different namespaces to share an address. nil means false. Otherwise
	// users who may write any Service could guess another Service's sharing key, and take the remaining ports of its
	// address.
	ShareBetweenNamespaces *bool `json:"shareBetweenNamespaces,omitempty"`

	// BGP configures routers to which the addresses are announced. nil means that they are announced to neighbours by
	// ARP and NDP.
	BGP *BGP `json:"bgp,omitempty"`

	Ranges []Range `json:"-"` // Addresses in parsed form
}

// BGP lists the routers to which all machines that may receive the packets announce a pool's addresses.
type BGP struct {
	ASN   uint32    `json:"asn"` // autonomous system of the machines
	Peers []BGPPeer `json:"peers"`
	// HoldTimeSeconds is the time without messages after which a machine counts as dead. 0 means BGPHoldTimeSeconds.
	HoldTimeSeconds int `json:"holdTimeSeconds,omitempty"`
}

// BGPPeer is a router.
type BGPPeer struct {
	Address string `json:"address"`
	Port    uint16 `json:"port,omitempty"` // 0 means BGPPort
	ASN     uint32 `json:"asn"`
}

// Defaults for BGP. The default hold time is also the shortest permitted one.
const (
	BGPPort            = 179
	BGPHoldTimeSeconds = 3
)

// Problem returns why the configuration is invalid, or "".
func (b *BGP) Problem() string {
	switch {
	case b.ASN == 0:
		return "asn is missing: the number of the machines' autonomous system"
	case len(b.Peers) == 0:
		return "there is no peer"
	case b.HoldTimeSeconds != 0 && (b.HoldTimeSeconds < 3 || b.HoldTimeSeconds > 65535):
		return fmt.Sprintf("the hold time is %d s: 3 to 65535", b.HoldTimeSeconds)
	}
	seen := map[string]bool{}
	for _, p := range b.Peers {
		a, err := readAddress(p.Address)
		switch {
		case err != nil:
			return "of a peer, " + err.Error()
		case p.ASN == 0:
			return fmt.Sprintf("peer %s has no asn", a)
		case seen[a.String()]:
			return fmt.Sprintf("peer %s is there twice", a)
		}
		seen[a.String()] = true
	}
	return ""
}

// sameSessions returns why two pools cannot use the same routers, or "". A router has only one session with a machine.
func sameSessions(a, b Pool) string {
	if a.BGP == nil || b.BGP == nil {
		return ""
	}
	for _, p := range a.BGP.Peers {
		for _, o := range b.BGP.Peers {
			if p.Address == o.Address &&
				(p != o || a.BGP.ASN != b.BGP.ASN || a.BGP.HoldTimeSeconds != b.BGP.HoldTimeSeconds) {
				return fmt.Sprintf("peer %s has another asn, port or hold time in pool %s", p.Address, b.Name)
			}
		}
	}
	return ""
}

// SessionProblem returns why a pool conflicts with others, or "".
func SessionProblem(pool Pool, others []Pool) string {
	for _, o := range others {
		if text := sameSessions(pool, o); text != "" {
			return text
		}
	}
	return ""
}

// Range is the addresses of one family from First to Last.
type Range struct{ First, Last netip.Addr }

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 && a.BitLen() == r.First.BitLen()
}

// Overlaps reports whether the ranges have an address in common.
func (r Range) Overlaps(o Range) bool { return r.Contains(o.First) || o.Contains(r.First) }

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// PrefixRange returns the range of all addresses of a network.
func PrefixRange(p netip.Prefix) Range {
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return Range{p.Masked().Addr(), end}
}

// ReadRange parses an address, a range from one address to another, or a network. It excludes a network's first
// address, and the broadcast address of an IPv4 network.
func ReadRange(text string) (Range, error) {
	if from, to, isRange := strings.Cut(text, "-"); isRange {
		first, err := readAddress(from)
		if err != nil {
			return Range{}, err
		}
		last, err := readAddress(to)
		if err != nil {
			return Range{}, err
		}
		if first.BitLen() != last.BitLen() {
			return Range{}, fmt.Errorf("%q begins and ends in different families", text)
		}
		if last.Less(first) {
			return Range{}, fmt.Errorf("%q ends before it begins", text)
		}
		return Range{first, last}, nil
	}
	if !strings.Contains(text, "/") {
		one, err := readAddress(text)
		return Range{one, one}, err
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return Range{}, fmt.Errorf("%q is not a network such as 10.0.0.0/28", text)
	}
	r := PrefixRange(p)
	if p.Masked().Addr() != p.Addr() {
		return Range{}, fmt.Errorf("%q has bits set outside of its prefix; the network is %s", text, p.Masked())
	}
	if spare := p.Addr().BitLen() - p.Bits(); spare > 1 {
		r.First = r.First.Next()
		if p.Addr().Is4() {
			r.Last = r.Last.Prev()
		}
	}
	return r, nil
}

func readAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", strings.TrimSpace(text))
	}
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return netip.Addr{}, fmt.Errorf("%s is not an address that other machines can reach", a)
	}
	return a, nil
}

// Contains reports whether an address belongs to the pool.
func (pool *Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(pool.Ranges, func(r Range) bool { return r.Contains(a) })
}

// Serves reports whether Services of a namespace may use the pool.
func (pool *Pool) Serves(namespace string) bool {
	return len(pool.Namespaces) == 0 || slices.Contains(pool.Namespaces, namespace)
}

// EncodePools returns the data and annotations of the ConfigMap.
func EncodePools(pools []Pool) (data, annotations map[string]string, err error) {
	if len(pools) == 0 {
		return nil, map[string]string{NoPoolsAnnotation: "true"}, nil
	}
	data = map[string]string{}
	for _, pool := range pools {
		text, err := json.Marshal(pool)
		if err != nil {
			return nil, nil, fmt.Errorf("write pool %s: %w", pool.Name, err)
		}
		data[pool.Name] = string(text)
	}
	return data, nil, nil
}

// ReadPools parses the data and annotations of a ConfigMap of pools. It returns an error and no pools if the ConfigMap
// is invalid, or if it is empty without NoPoolsAnnotation.
func ReadPools(data, annotations map[string]string) ([]Pool, error) {
	if len(data) == 0 && annotations[NoPoolsAnnotation] != "true" {
		return nil, fmt.Errorf("it is empty, and has no annotation %s: \"true\"", NoPoolsAnnotation)
	}
	return DecodePools(data)
}

// DecodePools parses the data of the ConfigMap. It returns the pools sorted by name. If anything is invalid it returns
// none: with only a part of the pools, Services would lose the addresses of the others.
func DecodePools(data map[string]string) ([]Pool, error) {
	var pools []Pool
	for _, name := range slices.Sorted(maps.Keys(data)) {
		d := json.NewDecoder(bytes.NewReader([]byte(data[name])))
		d.DisallowUnknownFields()
		pool := Pool{Name: name}
		if err := d.Decode(&pool); err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("pool %s: something follows the pool", name)
		}
		if len(pool.Addresses) == 0 {
			return nil, fmt.Errorf("pool %s: addresses are missing", name)
		}
		for _, text := range pool.Addresses {
			r, err := ReadRange(text)
			if err != nil {
				return nil, fmt.Errorf("pool %s: %w", name, err)
			}
			for _, other := range append(slices.Clone(pools), pool) {
				for _, o := range other.Ranges {
					if o.Overlaps(r) {
						return nil, fmt.Errorf("pool %s: %s overlaps %s of pool %s", name, r, o, other.Name)
					}
				}
			}
			pool.Ranges = append(pool.Ranges, r)
		}
		if pool.BGP != nil {
			if text := cmp.Or(pool.BGP.Problem(), SessionProblem(pool, pools)); text != "" {
				return nil, fmt.Errorf("pool %s: bgp: %s", name, text)
			}
		}
		pools = append(pools, pool)
	}
	return pools, nil
}
