package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (c *ControllerManager) problems() (list []Problem) {
	if _, err := ChosenControllers(c.Controllers); err != nil {
		list = append(list, Problem{Name: "controllers", Text: err.Error()})
	}
	for _, network := range c.ClusterCIDR {
		p, err := netip.ParsePrefix(network)
		if err != nil {
			continue
		}
		name, bits := "node_cidr_mask_size", c.NodeCIDRMaskSize
		if p.Addr().Is6() {
			name, bits = "node_cidr_mask_size_ipv6", c.NodeCIDRMaskSizeIPv6
		}
		if bits < p.Bits() || bits > p.Addr().BitLen() {
			list = append(
				list,
				Problem{
					Name: name,
					Text: fmt.Sprintf("must be from %d to %d: nodes get pieces of %s, and it is %d", p.Bits(),
						p.Addr().BitLen(), p, bits),
				},
			)
		}
	}
	if c.NodeMonitorGracePeriod < c.NodeMonitorPeriod {
		list = append(
			list,
			Problem{
				Name: "node_monitor_grace_period",
				Text: fmt.Sprintf("must not be less than node_monitor_period, which is %s: a node would be lost "+
					"before it is looked at twice", c.NodeMonitorPeriod),
				With: "node_monitor_period",
			},
		)
	}
	return list
}

func (n *Network) problems() (list []Problem) {
	for _, text := range n.Exceptions {
		if p, err := netip.ParsePrefix(text); err != nil || p != p.Masked() {
			list = append(
				list,
				Problem{
					Name: "masquerade_exceptions",
					Text: fmt.Sprintf("%q is not a network in CIDR notation, as 192.168.0.0/16", text),
				},
			)
		}
	}
	return append(list, addresses(map[string]string{"health_address": n.HealthAddress})...)
}

func (p *Proxy) problems() (list []Problem) {
	switch p.ProxyMode {
	case "nftables", "iptables", "userspace", "":
	case "ipvs", "kernelspace":
		list = append(
			list,
			Problem{
				Name: "mode",
				Text: fmt.Sprintf("%q is not carried out: write nftables, which costs the same however many services "+
					"there are, iptables or userspace", p.ProxyMode),
			},
		)
	default:
		list = append(
			list,
			Problem{
				Name: "mode",
				Text: fmt.Sprintf("%q is not known: nftables, iptables and userspace are", p.ProxyMode),
			},
		)
	}
	for _, text := range p.NodePortAddresses {
		switch prefix, err := netip.ParsePrefix(text); {
		case text == "primary":
			list = append(
				list,
				Problem{
					Name: "node_port_addresses",
					Text: `"primary" is not carried out: write the network of the nodes' addresses, as "10.0.0.0/24"`,
				},
			)
		case err != nil:
			list = append(
				list,
				Problem{
					Name: "node_port_addresses",
					Text: fmt.Sprintf("%q is not a network, as \"10.0.0.0/24\"", text),
				},
			)
		case prefix != prefix.Masked():
			list = append(
				list,
				Problem{
					Name: "node_port_addresses",
					Text: fmt.Sprintf("%s has bits behind its length: write %s", prefix, prefix.Masked()),
				},
			)
		}
	}
	return append(
		list,
		addresses(
			map[string]string{
				"healthz_bind_address": p.HealthzBindAddress,
				"metrics_bind_address": p.MetricsBindAddress,
			},
		)...)
}

func (d *DNS) problems() (list []Problem) {
	wrong := func(name, format string, args ...any) {
		list = append(list, Problem{Name: name, Text: fmt.Sprintf(format, args...)})
	}
	server := func(name, text string) {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			host, port = strings.Trim(text, "[]"), "53"
		}
		if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err != nil || at.Port() == 0 {
			wrong(name, "%q is not the IP address of a server, as \"10.0.0.53\" or \"10.0.0.53:5353\"", text)
		}
	}
	domain := func(name, text string) {
		if errs := validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(text, "."))); len(errs) > 0 {
			wrong(name, "%q is not a domain, as \"corp.example\"", text)
		}
	}
	for _, text := range d.Upstream {
		server("upstream", text)
	}
	for _, text := range d.AllowedClients {
		if _, err := netip.ParsePrefix(text); err != nil {
			wrong("allowed_clients", "%q is not a network, as \"10.0.0.0/8\"", text)
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(d.ForwardZones)) {
		domain("forward_zones", zone)
		if strings.TrimSpace(d.ForwardZones[zone]) == "" {
			wrong("forward_zones", "%q has no servers", zone)
		}
		for text := range strings.FieldsSeq(d.ForwardZones[zone]) {
			server("forward_zones", text)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(d.Hosts)) {
		domain("hosts", host)
		if strings.TrimSpace(d.Hosts[host]) == "" {
			wrong("hosts", "%q has no addresses", host)
		}
		for text := range strings.FieldsSeq(d.Hosts[host]) {
			if _, err := netip.ParseAddr(text); err != nil {
				wrong("hosts", "%q is not an IP address: several are separated by spaces", text)
			}
		}
	}
	if !slices.Contains([]string{"random", "round_robin", "sequential"}, d.Policy) {
		wrong("policy", "%q is not known: random, round_robin and sequential are", d.Policy)
	}
	return append(list, addresses(map[string]string{"health_address": d.HealthAddress})...)
}

// addresses returns problems for values that are not host:port. An empty value serves nothing and is valid.
func addresses(given map[string]string) (list []Problem) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		text := given[name]
		host, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = netip.ParseAddr(host)
		}
		n, wrong := strconv.Atoi(port)
		if text != "" && (err != nil || wrong != nil || n < 0 || n > 65535) {
			list = append(list,
				Problem{Name: name, Text: fmt.Sprintf("%q is not an address and a port, as \"127.0.0.1:9153\"", text)})
		}
	}
	return list
}

// measured lists the signals for which the kubelet evicts pods.
var measured = []string{
	"memory.available",
	"nodefs.available",
	"nodefs.inodesFree",
	"imagefs.available",
	"pid.available",
}

// reservable lists the resources that can be reserved.
var reservable = []string{"cpu", "memory", "ephemeral-storage"}

func (f *KubeletFile) problems() (list []Problem) {
	refuse := func(isInvalid bool, name, format string, args ...any) {
		if isInvalid {
			list = append(list, Problem{Name: name, Text: fmt.Sprintf(format, args...)})
		}
	}
	refuse(f.APIVersion != "kubelet.config.k8s.io/v1beta1" || f.Kind != "KubeletConfiguration", "kind",
		"it is of apiVersion %q and kind %q; only kubelet.config.k8s.io/v1beta1 KubeletConfiguration is supported",
		f.APIVersion, f.Kind)
	refuse(f.ServerTLSBootstrap && f.TLSCertFile+f.TLSPrivateKeyFile != "", "serverTLSBootstrap",
		"asks the cluster for the serving certificate that tlsCertFile names: leave one of them out")
	refuse(f.CgroupDriver != "" && f.CgroupDriver != "cgroupfs", "cgroupDriver", "%q is not supported: "+
		"this kubelet supports only cgroupfs, and the container runtime must use cgroupfs as well", f.CgroupDriver)
	reservation := cmp.Or(f.MemoryReservationPolicy, ReserveNone)
	refuse(reservation != ReserveNone && reservation != ReserveTiered, "memory_reservation_policy",
		"%q is neither %s nor %s", reservation, ReserveNone, ReserveTiered)
	refuse(!slices.Contains([]string{"AlwaysAllow", "Webhook", ""}, f.Authorization.Mode), "authorization.mode",
		"%q is neither Webhook nor AlwaysAllow", f.Authorization.Mode)
	refuse(f.CgroupRoot != "" && !path.IsAbs(f.CgroupRoot), "cgroup_root", "%q must start with a slash", f.CgroupRoot)
	refuse(f.ResolverConfig != "" && !path.IsAbs(f.ResolverConfig), "resolv_conf", "%q must start with a slash",
		f.ResolverConfig)
	if low, high := f.ImageGCLowThresholdPercent, f.ImageGCHighThresholdPercent; low >= high && high > 0 {
		list = append(list, Problem{Name: "image_gc_low_threshold_percent", With: "image_gc_high_threshold_percent",
			Text: fmt.Sprintf("must be less than image_gc_high_threshold_percent, which is %d, and is %d", high, low)})
	}
	refuse(f.PodPidsLimit == 0 || f.PodPidsLimit < -1, "pod_pids_limit",
		"must be at least 1, or -1 for no limit, and is %d", f.PodPidsLimit)
	q, err := resource.ParseQuantity(f.ContainerLogMaxSize)
	refuse(err != nil || q.Value() < 1, "container_log_max_size", "%q is not a size such as "+
		"\"10Mi\"", f.ContainerLogMaxSize)
	policies := []string{VerifyNone, VerifyPulled, VerifyAllButAllowed, VerifyAll}
	policy := cmp.Or(f.ImagePullCredentialsVerificationPolicy, VerifyPulled)
	refuse(!slices.Contains(policies, policy), "image_pull_credentials_verification_policy", "%q is not known: %s are",
		policy, strings.Join(policies, ", "))
	const allowlist = "preloaded_images_verification_allowlist"
	if len(f.PreloadedImagesVerificationAllowlist) > 0 && policy != VerifyAllButAllowed {
		list = append(list, Problem{Name: allowlist, With: "image_pull_credentials_verification_policy",
			Text: fmt.Sprintf("requires image_pull_credentials_verification_policy %s, not %s",
				VerifyAllButAllowed, policy)})
	}
	for _, pattern := range f.PreloadedImagesVerificationAllowlist {
		name := strings.TrimSuffix(pattern, "/*")
		tagged := strings.LastIndexByte(name, ':') > strings.LastIndexByte(name, '/') && strings.Contains(name, "/")
		refuse(name == "" || strings.ContainsAny(name, "*@ ") || tagged, allowlist,
			"%q is not the name of an image without tag and digest, as \"registry.example/team/web\", or of all below "+
				"a path, as \"registry.example/team/*\"", pattern)
	}
	for name, reserved := range map[string]map[string]string{"system_reserved": f.SystemReserved,
		"kube_reserved": f.KubeReserved} {
		for _, what := range slices.Sorted(maps.Keys(reserved)) {
			q, err := resource.ParseQuantity(reserved[what])
			refuse(!slices.Contains(reservable, what), name, "%q cannot be kept from pods: %s can", what,
				strings.Join(reservable, ", "))
			refuse(err != nil || q.Sign() < 0, name, "%s = %q is not a quantity such as \"100m\" or \"200Mi\"", what,
				reserved[what])
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(f.EvictionHard)) {
		refuse(!slices.Contains(measured, signal), "eviction_hard", "%q is not watched: %s are", signal,
			strings.Join(measured, ", "))
		refuse(!threshold(f.EvictionHard[signal]), "eviction_hard",
			"%s = %q is neither a quantity, as \"100Mi\", nor a share of all, as \"10%%\"", signal,
			f.EvictionHard[signal])
	}
	slices.SortStableFunc(list, func(a, b Problem) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// threshold reports whether a text is a quantity or a percentage.
func threshold(text string) bool {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		return err == nil && percent >= 0 && percent <= 100
	}
	q, err := resource.ParseQuantity(text)
	return err == nil && q.Sign() >= 0
}
