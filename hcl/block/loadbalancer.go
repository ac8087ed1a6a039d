package block

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/validation"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

type loadBalancerBlock struct {
	Name       string   `hcl:"name,optional" doc:"Name of the pool, for the annotation clusterctl.local/load-balancer-pool of services." default:"the block's label"`
	Addresses  []string `hcl:"addresses" doc:"Addresses that are not used otherwise: ranges (\"10.0.0.10-10.0.0.20\"), networks (\"192.168.7.0/28\", without the address of the network itself and, in IPv4, its last one) and single ones, of both families."`
	AutoAssign *bool    `hcl:"auto_assign,optional" doc:"Whether services that name neither a pool nor an address get an address of this pool." default:"true"`
	Namespaces []string `hcl:"namespaces,optional" doc:"Namespaces whose services get addresses of this pool." default:"all namespaces"`
	ShareNS    *bool    `hcl:"share_between_namespaces,optional" doc:"Whether services of different namespaces share an address when both have the annotation clusterctl.local/allow-shared-address with the same key. A key is not a secret: with true, a user who may write services in some namespace of the pool can use the free ports of an address that another shares." default:"false: those of one namespace do"`
	Interfaces []string `hcl:"interfaces,optional" doc:"Network interfaces of the machines on which the addresses are announced; a machine that has none of them announces none." default:"the one whose network an address is in, else that of the default route"`

	BGP *bgpBlock `hcl:"bgp,block" doc:"Routers to which every machine that accepts packets for the pool's addresses announces them. Without routers, one machine at a time announces an address to its neighbours by ARP and NDP. A router that spreads packets over several routes spreads them over machines."`
}

type bgpBlock struct {
	ASN      int64          `hcl:"asn" doc:"Number of the machines' autonomous system, 1 to 4294967295."`
	HoldTime *string        `hcl:"hold_time,optional" doc:"Hold time: silence after which a router and a machine consider each other dead. The shorter value of both is used; at least 3s." default:"3s"`
	Peers    []bgpPeerBlock `hcl:"peer,block" doc:"A router. Machines open the session; routes that routers announce are ignored."`
}

type bgpPeerBlock struct {
	Address string `hcl:"address" doc:"IP address of the router."`
	ASN     int64  `hcl:"asn" doc:"Number of its autonomous system; for internal BGP, that of the machines."`
	Port    *int   `hcl:"port,optional" doc:"Its port." default:"179"`
}

func decodeLoadBalancer(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw loadBalancerBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	wrong := func(name, summary, format string, args ...any) {
		diags = append(diags, newError(attributeRange(b, b.Body, name), summary, format, args...))
	}
	pool := config.Pool{
		Address: x.fullAddress("load_balancer." + b.Labels[0]),
		Source:  sourceOf(b),
		Pool: daemons.Pool{Name: orDefault(raw.Name, x.defaultName(b.Labels[0])),
			Addresses: raw.Addresses, AutoAssign: raw.AutoAssign, Namespaces: raw.Namespaces,
			ShareBetweenNamespaces: raw.ShareNS, Interfaces: raw.Interfaces},
	}
	if problems := validation.IsDNS1123Label(pool.Name); len(problems) > 0 {
		diags = append(diags, newError(labelRange(b, "name"), "Invalid name", "%q is not the name of a pool: a name "+
			"has lower-case letters, digits and dashes, and begins and ends with a letter or a digit.", pool.Name))
	}
	if len(raw.Addresses) == 0 {
		wrong("addresses", "Pool without addresses",
			"List addresses that are not used otherwise, as addresses = [\"10.0.0.10-10.0.0.20\"].")
	}
	for _, text := range raw.Addresses {
		r, err := daemons.ReadRange(text)
		if err != nil {
			wrong("addresses", "Invalid addresses", "%s.", err)
			continue
		}
		if i := slices.IndexFunc(pool.Ranges, r.Overlaps); i >= 0 {
			wrong("addresses", "Overlapping addresses", "%s overlaps %s of the same pool.", r, pool.Ranges[i])
			continue
		}
		pool.Ranges = append(pool.Ranges, r)
	}
	for _, namespace := range raw.Namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			wrong("namespaces", "Invalid namespace", "%q is not the name of a namespace: a name has lower-case "+
				"letters, digits and dashes, and begins and ends with a letter or a digit.", namespace)
		}
	}
	for _, name := range raw.Interfaces {
		if name == "" || len(name) > 15 {
			wrong("interfaces", "Invalid interface",
				"%q is not the name of a network interface: a name has 1 to 15 characters.", name)
		}
	}
	if raw.BGP != nil {
		if len(raw.Interfaces) > 0 {
			wrong("interfaces", "Interfaces of a pool with BGP",
				"Addresses with bgp are announced to routers, not on interfaces. Remove interfaces or bgp.")
		}
		var problem string
		if pool.BGP, problem = decodeBGP(raw.BGP); problem == "" {
			problem = pool.BGP.Problem()
		}
		if problem != "" {
			diags = append(diags, newError(attributeRange(b, b.Body, "bgp"), "Invalid bgp",
				"%s cannot announce its addresses to routers: %s.", pool.Address, problem))
		}
	}
	c.Pools = append(c.Pools, pool)
	return cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(pool.Name)}), diags
}

// decodeBGP returns the content of a bgp block, or a description of the error.
func decodeBGP(raw *bgpBlock) (*daemons.BGP, string) {
	number := func(n int64) (uint32, string) {
		if n < 1 || n > math.MaxUint32 {
			return 0, fmt.Sprintf("%d is not the number of an autonomous system: 1 to 4294967295", n)
		}
		return uint32(n), ""
	}
	var problem string
	bGP := &daemons.BGP{}
	if bGP.ASN, problem = number(raw.ASN); problem != "" {
		return nil, problem
	}
	if raw.HoldTime != nil {
		d, err := time.ParseDuration(*raw.HoldTime)
		if err != nil || d < 3*time.Second || d > 65535*time.Second || d%time.Second != 0 {
			return nil, fmt.Sprintf("hold_time %q is not a time of whole seconds from 3s on", *raw.HoldTime)
		}
		bGP.HoldTimeSeconds = int(d / time.Second)
	}
	for _, p := range raw.Peers {
		peer := daemons.BGPPeer{Address: p.Address}
		if a, err := netip.ParseAddr(p.Address); err == nil {
			peer.Address = a.String()
		}
		if peer.ASN, problem = number(p.ASN); problem != "" {
			return nil, problem
		}
		if p.Port != nil {
			if *p.Port < 1 || *p.Port > math.MaxUint16 {
				return nil, fmt.Sprintf("port %d is not a port: 1 to 65535", *p.Port)
			}
			peer.Port = uint16(*p.Port)
		}
		bGP.Peers = append(bGP.Peers, peer)
	}
	return bGP, ""
}

// checkPools returns errors for pool addresses that are also used by other pools, the cluster's networks, machines or
// the API.
func checkPools(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	type owner struct {
		what string
		daemons.Range
	}
	var owners []owner
	one := func(what string, a netip.Addr) {
		if a.IsValid() {
			owners = append(owners, owner{what, daemons.Range{First: a, Last: a}})
		}
	}
	for _, p := range c.PodCIDRs {
		owners = append(owners, owner{fmt.Sprintf("pod_cidrs %s", p), daemons.PrefixRange(p)})
	}
	for _, p := range c.ServiceCIDRs {
		owners = append(owners, owner{fmt.Sprintf("service_cidrs %s", p), daemons.PrefixRange(p)})
	}
	for _, m := range c.Machines {
		for _, a := range append([]netip.Addr{m.IP, m.SecondIP}, m.External...) {
			one(fmt.Sprintf("%s, which has the address %s", m.Address, a), a)
		}
	}
	if endpoint, err := netip.ParseAddrPort(c.Endpoint); err == nil {
		one(fmt.Sprintf("the API's endpoint %s", endpoint.Addr()), endpoint.Addr())
	}
	names := map[string]config.Pool{}
	for i, p := range c.Pools {
		if other, twice := names[p.Name]; twice {
			diags = append(diags, newError(at(p.Source), "Duplicate pool name",
				"%s and %s (%s) are both the pool %q. Give one of them another name = \"…\".", p.Address, other.Address,
				positionText(other.Source), p.Name))
		}
		names[p.Name] = p
		var others []daemons.Pool
		for _, o := range c.Pools[:i] {
			others = append(others, o.Pool)
		}
		if text := daemons.SessionProblem(p.Pool, others); text != "" {
			diags = append(diags, newError(at(p.Source), "Conflicting bgp",
				"%s: %s. A router has one session with a machine, so say the same of it in both.", p.Address, text))
		}
		for _, r := range p.Ranges {
			for _, o := range owners {
				if r.Overlaps(o.Range) {
					diags = append(diags, newError(at(p.Source), "Overlapping addresses",
						"%s of %s overlaps %s. The addresses of a pool must not be used otherwise.", r, p.Address,
						o.what))
				}
			}
			for _, other := range c.Pools[:i] {
				for _, o := range other.Ranges {
					if r.Overlaps(o) {
						diags = append(diags, newError(at(p.Source), "Overlapping addresses",
							"%s of %s overlaps %s of %s (%s).", r, p.Address, o, other.Address,
							positionText(other.Source)))
					}
				}
			}
		}
	}
	if len(c.Pools) == 0 {
		return diags
	}
	for _, o := range c.Objects {
		metadata, _ := o.Content["metadata"].(map[string]any)
		if o.Content["kind"] == "ConfigMap" && metadata["namespace"] == "kube-system" &&
			metadata["name"] == daemons.PoolsName {
			diags = append(diags, newError(at(o.Source), "Duplicate object",
				"%s is what the load_balancer blocks make, %s (%s) among them. Leave one of both out.", o.Address,
				c.Pools[0].Address, positionText(c.Pools[0].Source)))
		}
	}
	return diags
}
