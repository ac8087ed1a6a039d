package block

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type clusterBlock struct {
	PodCIDRs     []string          `hcl:"pod_cidrs,optional" doc:"Networks of pod addresses: one IPv4 network, or one IPv4 and one IPv6 network for dual-stack pods. Dual stack needs a second_address on every machine." default:"[\"10.244.0.0/16\"]"`
	ServiceCIDRs []string          `hcl:"service_cidrs,optional" doc:"Networks of service addresses: one IPv4 network, or one IPv4 and one IPv6 network with dual-stack pods." default:"[\"10.96.0.0/16\"]"`
	Version      string            `hcl:"version,optional" doc:"Version of Kubernetes. A release of clusterctl supports exactly one." default:"the release's"`
	Domain       string            `hcl:"domain,optional" doc:"Domain of the cluster's names." default:"\"cluster.local\""`
	ControlPlane string            `hcl:"control_plane,optional" doc:"How etcd, the API server, the controllers and the scheduler run: systemd, as units; or static-pods, as static pods of a kubelet on their machine. The machine is a node then, with a taint unless it has the role node." default:"\"systemd\""`
	API          *apiBlock         `hcl:"api,block" doc:"How clients from outside reach the API."`
	Etcd         *etcdBlock        `hcl:"etcd,block" doc:"The cluster's store."`
	Encryption   *encryptionBlock  `hcl:"encryption,block" doc:"How values are encrypted in the store."`
	Audit        *auditBlock       `hcl:"audit,block" doc:"What is recorded about requests to the API."`
	Runtime      *runtimeBlock     `hcl:"runtime,block" doc:"Where the container runtime comes from, and how it pulls images."`
	Roll         *rollBlock        `hcl:"roll,block" doc:"How changes that restart daemons are rolled out over the nodes."`
	Scheduler    *schedulerBlock   `hcl:"scheduler,block" doc:"Settings of the scheduler. A change restarts it."`
	Controllers  *controllersBlock `hcl:"controllers,block" doc:"Settings of the controllers. A change restarts them."`
	Kubelet      *kubeletBlock     `hcl:"kubelet,block" doc:"Settings of all kubelets; a machine's own settings take precedence. A change restarts kubelets; pods keep running."`
	Proxy        *kubeProxyBlock   `hcl:"proxy,block" doc:"Settings of the service proxy. A change restarts it; its rules in the kernel stay."`
	Network      *networkBlock     `hcl:"network,block" doc:"Settings of the pod network. A change restarts its daemon; running pods keep their network."`
	DNS          *dnsBlock         `hcl:"dns,block" doc:"The cluster's name servers. A change of a setting restarts them."`
	Ingress      *ingressBlock     `hcl:"ingress,block" doc:"The ingress proxy, on ports of the nodes. Without the block there is no proxy. A change of a setting restarts it without losing new connections."`
	Dashboard    *dashboardBlock   `hcl:"dashboard,block" doc:"The dashboard, on port 10264 of every control-plane machine, for visitors with a token. Without the block there is none; clusterctl dashboard needs none."`
	GitOps       *gitOpsBlock      `hcl:"gitops,block" doc:"Settings of the GitOps controller, which runs while there are git_source blocks. A change restarts it."`
	System       *systemBlock      `hcl:"system,block" doc:"Packages of the machines' distribution, and when machines may be rebooted."`
}

type etcdBlock struct {
	Members  *int           `hcl:"members,optional" doc:"How many control-plane machines hold a member: odd, at most 7." default:"the largest odd number of control-plane machines; a member that is there stays"`
	Quota    string         `hcl:"quota,optional" doc:"Size of the store's file, including history and unused pages, at which it rejects writes until space is freed, as 8Gi. At most 64Gi. A change restarts the members, one by one." default:"\"8Gi\""`
	Snapshot *snapshotBlock `hcl:"snapshot,block" doc:"Snapshots of the store. Each machine with a member takes and checks its own."`
}

func decodeCluster(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw clusterBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if len(raw.PodCIDRs) == 0 {
		raw.PodCIDRs = []string{"10.244.0.0/16"}
	}
	if len(raw.ServiceCIDRs) == 0 {
		raw.ServiceCIDRs = []string{"10.96.0.0/16"}
	}
	c.Name, c.Source = b.Labels[0], sourceOf(b)
	c.Domain = orDefault(raw.Domain, "cluster.local")
	c.Version = orDefault(raw.Version, config.KubernetesVersion)
	if c.Version != config.KubernetesVersion {
		diags = append(diags, newError(attributeRange(b, b.Body, "version"), "Version that this release does not have",
			"This clusterctl brings Kubernetes %s. Leave version out, or use the clusterctl release for %s.",
			config.KubernetesVersion, c.Version))
	}
	if errs := validation.IsDNS1123Label(c.Name); len(errs) > 0 {
		diags = append(diags, newError(b.LabelRanges[0].Ptr(), "Invalid cluster name", "%s.", errs[0]))
	}
	if errs := validation.IsDNS1123Subdomain(c.Domain); len(errs) > 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "domain"), "Invalid domain", "%s.", errs[0]))
	}
	var more hcl.Diagnostics
	c.PodCIDRs, more = parsePrefixes(b, "pod_cidrs", raw.PodCIDRs, 24, 64)
	diags = append(diags, more...)
	c.ServiceCIDRs, more = parsePrefixes(b, "service_cidrs", raw.ServiceCIDRs, 28, 120)
	diags = append(diags, more...)
	if len(c.ServiceCIDRs) > 1 && len(c.PodCIDRs) == 1 {
		diags = append(diags, newError(attributeRange(b, b.Body, "service_cidrs"),
			"Services of a family that pods lack",
			"Services have addresses of both families, and pods of IPv4 alone: nothing could be behind those of "+
				"IPv6. Give pod_cidrs a network of IPv6 as well, or write one service network."))
	}
	if raw.API != nil && raw.API.Endpoint != "" {
		host, port, err := net.SplitHostPort(raw.API.Endpoint)
		if err != nil {
			host, port = raw.API.Endpoint, "6443"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
			diags = append(diags, newError(nestedRange(b, "api", "endpoint"), "Invalid endpoint",
				"Write host:port, as in \"10.0.0.100:6443\"."))
		}
		c.Endpoint = net.JoinHostPort(host, port)
		diags = append(diags, decodeVirtualAddress(b, host, port, raw.API.Virtual, c)...)
	}
	diags = append(diags, decodeAPI(b, raw.API, c)...)
	diags = append(diags, decodeEtcd(x, b, raw.Etcd, c)...)
	diags = append(diags, decodeEncryption(b, raw.Encryption, c)...)
	diags = append(diags, decodeAudit(b, raw.Audit, c)...)
	c.ControlPlaneForm = orDefault(raw.ControlPlane, config.FormSystemd)
	if f := c.ControlPlaneForm; f != config.FormSystemd && f != config.FormStaticPods {
		diags = append(diags, newError(attributeRange(b, b.Body, "control_plane"), "Unknown form of the control plane",
			"%q is not known: write %q for units of systemd, or %q for static pods of a kubelet.", f,
			config.FormSystemd, config.FormStaticPods))
	}
	diags = append(diags, decodeRuntime(b, raw.Runtime, c)...)
	diags = append(diags, decodeRoll(b, raw.Roll, c)...)
	diags = append(diags, decodeSettings(x, b, &raw, c)...)
	diags = append(diags, decodeDashboard(b, raw.Dashboard, c)...)
	diags = append(diags, decodeSystem(b, raw.System, c)...)
	value := map[string]cty.Value{
		"name": cty.StringVal(c.Name), "version": cty.StringVal(c.Version), "domain": cty.StringVal(c.Domain),
		"pod_cidrs": stringList(c.PodCIDRs), "service_cidrs": stringList(c.ServiceCIDRs),
		"endpoint": cty.StringVal(c.Endpoint),
	}
	if !diags.HasErrors() {
		value["dns_address"] = cty.StringVal(c.ServiceIP(10).String())
	}
	return cty.ObjectVal(value), diags
}

// decodeVirtualAddress determines whether the endpoint is a virtual address that the control plane holds. Validate,
// which knows the machines, checks whether it is a machine's own address.
func decodeVirtualAddress(b *hcl.Block, host, port string, virtual *bool, c *config.Cluster) (diags hcl.Diagnostics) {
	address, err := netip.ParseAddr(host)
	at := nestedRange(b, "api", "virtual")
	// A loopback endpoint is valid, because every machine may run its own load balancer.
	if err == nil && !address.IsLoopback() && unreachableReason(address) != "" {
		return hcl.Diagnostics{newError(nestedRange(b, "api", "endpoint"), "Invalid endpoint",
			"The API cannot be reached at %q: %s.", host, unreachableReason(address))}
	}
	switch {
	case err != nil && valueOr(virtual, false):
		diags = append(diags, newError(at, "Virtual address is a name",
			"The control plane can hold an IP address, and %q is a name. Write the address in endpoint, or leave "+
				"virtual out.", host))
	case err != nil || !valueOr(virtual, true):
	case port != "6443":
		diags = append(diags, newError(nestedRange(b, "api", "endpoint"), "Invalid port of a virtual address",
			"The API servers answer on port 6443, so on a virtual address too. Write %q, or virtual = false when the "+
				"address is a load balancer's.", net.JoinHostPort(host, "6443")))
	default:
		c.VirtualAddress = address.Unmap()
	}
	return diags
}

func decodeEtcd(x *Context, b *hcl.Block, raw *etcdBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	if raw.Members != nil {
		n := *raw.Members
		c.Etcd.Members, c.Etcd.MembersSet = n, true
		at := nestedRange(b, "etcd", "members")
		switch {
		case n < 1 || n > config.MaxEtcdMembers:
			diags = append(diags, newError(at, "Number of etcd members out of range",
				"Between 1 and %d members make sense; leave members out to have the number worked out.",
				config.MaxEtcdMembers))
		case n%2 == 0:
			diags = append(diags, newError(at, "Even number of etcd members",
				"%d members need %d to agree and so survive the loss of %d, which %s as well, with less work for "+
					"every write. "+
					"Write members = %d or members = %d, or leave it out: then it is the largest odd number of "+
					"control-plane machines, at most %d.", n, n/2+1, n-(n/2+1), membersDo(n-1), n-1, n+1,
				config.MaxEtcdMembers))
		}
	}
	if raw.Quota != "" {
		const minimum, maximum = 64 << 20, 64 << 30
		q, err := resource.ParseQuantity(raw.Quota)
		if c.Etcd.Quota = q.Value(); err != nil || c.Etcd.Quota < minimum || c.Etcd.Quota > maximum {
			diags = append(diags, newError(nestedRange(b, "etcd", "quota"), "Invalid size of the store",
				"%q: write from 64Mi to 64Gi. A store that is larger takes long to start, and to copy to a "+
					"machine that joins.", raw.Quota))
		}
	}
	return append(diags, decodeSnapshot(x, b, raw.Snapshot, c)...)
}

func membersDo(members int) string {
	if members == 1 {
		return "1 member does"
	}
	return fmt.Sprintf("%d members do", members)
}

// parsePrefixes parses networks: one of IPv4, or one of each family. IPv4 comes first, because machines and the API are
// reached over it. maxIPv4 and maxIPv6 are the maximum prefix lengths.
func parsePrefixes(b *hcl.Block, name string, texts []string, maxIPv4, maxIPv6 int) (list []netip.Prefix,
	diags hcl.Diagnostics) {
	at := attributeRange(b, b.Body, name)
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			diags = append(diags, newError(at, "Invalid network",
				"%q is not a network in CIDR notation, as \"10.244.0.0/16\".", text))
			continue
		}
		smallest := maxIPv4
		if p.Addr().Is6() {
			smallest = maxIPv6
		}
		switch {
		case p != p.Masked():
			diags = append(diags, newError(at, "Invalid network",
				"%s has bits set to the right of its prefix; did you mean %s?", p, p.Masked()))
		case p.Bits() > smallest:
			diags = append(diags, newError(at, "Network too small",
				"%s has too few addresses: /%d is the smallest that works here.", p, smallest))
		case name == "service_cidrs" && p.Addr().Is6() && p.Bits() < 108:
			diags = append(diags, newError(at, "Network too large",
				"%s has more addresses than services are given: /108 is the largest that works here, as %s.", p,
				netip.PrefixFrom(p.Addr(), 108)))
		}
		list = append(list, p)
	}
	if diags.HasErrors() {
		return list, diags
	}
	switch {
	case len(list) > 2 || len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4():
		diags = append(diags, newError(at, "Too many networks",
			"Pods and services have one address of each family at most. Write one network, as %s = [%q], or one "+
				"of IPv4 and one of IPv6.", name, texts[0]))
	case list[0].Addr().Is6():
		diags = append(diags, newError(at, "Network of IPv6 first",
			"%s is a network of IPv6, and the first one is of IPv4: machines reach the API, and the API its "+
				"machines, by IPv4. Write the network of IPv4 first, as %s = [%q, %q].",
			list[0], name, examplePrefix(name), list[0]))
	}
	return list, diags
}

func examplePrefix(name string) string {
	if name == "service_cidrs" {
		return "10.96.0.0/16"
	}
	return "10.244.0.0/16"
}
