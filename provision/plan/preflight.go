package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/state"
)

// Preflight checks whether a machine can become what it is declared to be. Errors stop a run before anything is
// changed; warnings are only shown. operator is the time on the operator's computer when the machine's clock was read.
func Preflight(
	c *config.Cluster,
	m config.Machine,
	f host.Facts,
	s *state.State,
	operator time.Time,
) (errs, warnings []string) {
	found := findings{}
	found.machine(m, f)
	found.system(c, m, f)
	found.clock(f, operator)
	found.store(m, f, s)
	if !s.Machines[m.Address].HasJoined {
		found.newMachine(c, m, f)
	}
	found.proxies(c, f)
	if m.HasRole(config.RoleNode) {
		found.node(f)
		found.programs(c, f)
	}
	return found.errs, found.warnings
}

type findings struct{ errs, warnings []string }

func (l *findings) fail(format string, args ...any) {
	l.errs = append(l.errs, fmt.Sprintf(format, args...))
}
func (l *findings) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// machine checks that this is the intended machine and that it can be changed.
func (l *findings) machine(m config.Machine, f host.Facts) {
	if len(f.MissingFeatures) > 0 {
		l.fail("lacks %s, which clusterctl builds upon", strings.Join(f.MissingFeatures, ", "))
	}
	if !f.IsRoot {
		l.fail("the agent does not run as root")
	}
	if len(f.Addresses) > 0 && !slices.Contains(f.Addresses, m.IP.String()) {
		l.fail("does not have the address %s that is declared for it; it has %s. If you log in at another address, "+
			"put that into ssh { host = … }", m.IP, strings.Join(f.Addresses, ", "))
	}
	if second := m.SecondIP; second.IsValid() && len(f.Addresses) > 0 &&
		!slices.Contains(f.Addresses, second.String()) {
		l.fail("does not have the second address %s that is declared for it; it has %s", second,
			strings.Join(f.Addresses, ", "))
	}
	if len(f.ReadOnly) > 0 {
		l.fail("%s cannot be written to: programs and settings go there", strings.Join(f.ReadOnly, ", "))
	}
}

// proxies warns if systemd sets a proxy for all services and the configuration declares none.
func (l *findings) proxies(c *config.Cluster, f host.Facts) {
	var texts []string
	for _, name := range host.ProxyVariables {
		if value := f.Proxies[name]; value != "" && !strings.EqualFold(name, "NO_PROXY") {
			texts = append(texts, name+"="+value)
		}
	}
	if len(texts) == 0 || c.System.Proxy != nil {
		return
	}
	l.warn("systemd gives every service a proxy (%s, DefaultEnvironment in /etc/systemd/system.conf or its "+
		"drop-ins): only containerd, the kubelet, the API server and snapshots of the store use it, and not for the "+
		"cluster's own networks. To declare a proxy, use system { proxy { … } } in the cluster block",
		strings.Join(texts, ", "))
}

// Distributions that were tested, and those that cannot work, with the reason. Preflight warns of others.
var (
	testedSystems   = []string{"debian", "ubuntu"}
	relatedSystems  = []string{"debian", "ubuntu", "rhel", "fedora", "centos", "suse", "opensuse", "arch"}
	unusableSystems = map[string]string{
		"alpine": "it has no systemd", "void": "it has no systemd", "gentoo": "it has no systemd by " +
			"default", "nixos": "it creates /etc again from its own configuration",
		"talos": "it has no login", "bottlerocket": "programs cannot be put on it", "openwrt": "it has no systemd",
	}
)

// minKernel is the oldest version with the required features of nftables and cgroups. testedKernel is the oldest
// version that was tested.
const minKernel, testedKernel = 418, 510 // 4.18, 5.10

// system checks whether the machine's operating system is supported.
func (l *findings) system(c *config.Cluster, m config.Machine, f host.Facts) {
	name, _, _ := strings.Cut(f.OS, " ")
	family := append(strings.Fields(f.OSLike), name)
	isIn := func(list []string) bool {
		return slices.ContainsFunc(family, func(n string) bool { return slices.Contains(list, n) })
	}
	debian := isIn(testedSystems)
	switch reason, bad := unusableSystems[name]; {
	case name == "":
	case bad:
		l.fail("runs %s, which is not supported: %s", f.OS, reason)
	case !isIn(relatedSystems):
		l.warn("runs %s, which is untested; tested are %s, and their relatives and those of Fedora and SUSE are "+
			"expected to work", f.OS, strings.Join(testedSystems, " and "))
	}
	if c.Runtime.Source == config.RuntimeDistribution && m.HasRole(config.RoleNode) && name != "" && !debian {
		l.fail("runs %s, whose packages are not known here: runtime { source = \"bundle\" } needs none", f.OS)
	}
	if s := c.System; (len(s.Packages) > 0 || s.Upgrade != "") && name != "" && !debian {
		l.fail("runs %s, whose packages are not known here: leave packages and upgrade out of the cluster's "+
			"system block", f.OS)
	}
	switch v := kernelNumber(f.Kernel); {
	case v == 0:
	case v < minKernel:
		l.fail("has Linux %s; 4.18 is the oldest that has what is needed of nftables and control groups", f.Kernel)
	case v < testedKernel:
		l.warn("has Linux %s, and nothing older than 5.10 was tried", f.Kernel)
	}
}

// kernelNumber returns a version as a number: 510 for 5.10.0-21-amd64. It returns 0 for an invalid version.
func kernelNumber(version string) int {
	major, rest, _ := strings.Cut(version, ".")
	minor := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || b > 99 {
		return 0
	}
	return a*100 + b
}

// Limits of clock differences. Certificates are backdated by less than maxClockSkew; leases last for a few seconds.
const (
	maxClockSkew  = 2 * time.Minute
	warnClockSkew = 2 * time.Second
)

// clock compares the machine's clock with the operator's.
func (l *findings) clock(f host.Facts, operator time.Time) {
	if f.Clock.IsZero() || operator.IsZero() {
		return
	}
	ahead := f.Clock.Sub(operator)
	word := "ahead of"
	if ahead < 0 {
		ahead, word = -ahead, "behind"
	}
	text := fmt.Sprintf("its clock is %s %s this computer's (%s there): certificates and leases are judged by it. Set "+
		"whichever is wrong, for instance with timedatectl set-ntp true", ahead.Round(time.Second), word,
		f.Clock.UTC().Format(time.DateTime))
	switch {
	case ahead > maxClockSkew:
		l.fail("%s", text)
	case ahead > warnClockSkew:
		l.warn("%s", text)
	}
}

// store checks whether etcd's data directory on the machine matches the state.
func (l *findings) store(m config.Machine, f host.Facts, s *state.State) {
	_, ours := s.Etcd[m.Name]
	if former := f.EtcdCluster != "" &&
		(f.EtcdCluster == s.EtcdCluster || slices.Contains(s.FormerStores, f.EtcdCluster)); f.HasEtcdData &&
		!ours &&
		!former {
		l.fail("has data of an etcd member in /var/lib/etcd that this configuration's state knows nothing of: it may " +
			"belong to another cluster. Bring that cluster's state (the folder .clusterctl) here, or, if it is this " +
			"one and its state is lost, rebuild it with clusterctl state rebuild; or move /var/lib/etcd away")
	}
	if _, member := s.Etcd[m.Name]; member && len(s.Etcd) == 1 && s.Machines[m.Address].HasJoined && !f.HasEtcdData {
		l.fail("held the only etcd member, and its data in /var/lib/etcd is gone: bring the data back from a " +
			"snapshot with clusterctl etcd snapshot restore, or destroy the cluster and apply again")
	}
}

const (
	slowSync      = 10 * time.Millisecond // etcd's recommended limit for the 99th percentile of its writes
	minFreeBytes  = 256 << 20
	warnFreeBytes = 2 << 30
)

// newMachine checks a machine that has not joined yet.
func (l *findings) newMachine(c *config.Cluster, m config.Machine, f host.Facts) {
	for _, p := range f.Listening {
		if !needsPort(c, m, p.Port) {
			continue
		}
		by := p.Process
		if by == "" {
			by = "a process that is not known"
		}
		l.fail("port %d/%s, which %s needs, is in use by %s", p.Port, p.Network, host.DaemonPorts[p.Port], by)
	}
	if !m.HasRole(config.RoleControlPlane) {
		return
	}
	if free, ok := f.FreeBytes["/var/lib/etcd"]; ok && free < minFreeBytes {
		l.fail("has %s free for /var/lib/etcd; etcd wants %s at least", formatBytes(free), formatBytes(minFreeBytes))
	} else if ok && free < warnFreeBytes {
		l.warn("has %s free for /var/lib/etcd, which grows to %s and more", formatBytes(free),
			formatBytes(warnFreeBytes))
	}
	if f.SyncDuration > slowSync {
		l.warn("its disk takes more than %s to keep a small write, for which etcd waits: expect elections under load",
			slowSync)
	}
}

// needsPort reports whether a daemon on this machine listens on a port.
func needsPort(c *config.Cluster, m config.Machine, port int) bool {
	switch host.DaemonPorts[port] {
	case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "metrics-server":
		return m.HasRole(config.RoleControlPlane)
	case "kubelet", "kube-proxy":
		return m.HasRole(config.RoleNode)
	case "kube-ingress":
		return c.HasIngress(m) && slices.Contains(c.Ingress.Ports(), port)
	case "kube-dashboard":
		return m.HasRole(config.RoleControlPlane) && c.Dashboard != nil
	case "gitops-controller":
		return m.HasRole(config.RoleControlPlane) && c.NeedsGitOps()
	case "kube-dns":
		// other machines run kube-dns only if there are few control-plane machines
		return m.HasRole(config.RoleControlPlane)
	}
	return true
}

// neededControllers are the cgroup controllers that enforce pods' limits.
var neededControllers = []string{"cpu", "memory", "pids"}

// node checks a machine that will run pods.
func (l *findings) node(f host.Facts) {
	if len(f.MissingNodeFeatures) > 0 {
		l.fail("its kernel has no %s, neither built in nor as a module: install the distribution's whole kernel",
			strings.Join(f.MissingNodeFeatures, ", "))
	}
	if len(f.Controllers) > 0 {
		var missing []string
		for _, c := range neededControllers {
			if !slices.Contains(f.Controllers, c) {
				missing = append(missing, c)
			}
		}
		if len(missing) > 0 {
			l.fail("its kernel has the control group controllers %s off, by which pods are limited: see its command "+
				"line, cgroup_enable=…", strings.Join(missing, ", "))
		}
	}
	if f.Swap > 0 {
		l.warn("has %s of swap on: pods that take too much memory slow everything down before they end. swapoff -a, "+
			"and its line in /etc/fstab, turn it off", formatBytes(f.Swap))
	}
	var stay []string
	for _, name := range slices.Sorted(slices.Values(f.FrozenSysctls)) {
		if f.Sysctl[name] != host.Sysctls[name] {
			stay = append(stay,
				fmt.Sprintf("%s is %s, not %s", name, orFallback(f.Sysctl[name], "absent"), host.Sysctls[name]))
		}
	}
	if len(stay) > 0 {
		l.warn("kernel settings that cannot be written there stay: %s", strings.Join(stay, ", "))
	}
}

// programs checks for programs that daemons call and that clusterctl does not install.
func (l *findings) programs(c *config.Cluster, f host.Facts) {
	proxy := daemons.DefaultProxy()
	c.Proxy.Over(&proxy)
	if proxy.ProxyMode != "iptables" || slices.Contains(c.System.Packages, "iptables") {
		return
	}
	for _, name := range f.MissingPrograms {
		l.fail("lacks %s, which proxy { mode = \"iptables\" } needs: install the package iptables, for instance with "+
			"system { packages = [\"iptables\"] }, or choose another mode", name)
	}
}

// freeMargin is the number of bytes that must remain free after all files have been sent.
const freeMargin = 64 << 20

// SpaceProblem returns why files of so many bytes do not fit on a machine, or "" if they do.
func SpaceProblem(f host.Facts, bytes int64) string {
	free, ok := f.FreeBytes[host.LibraryDir]
	if !ok || bytes == 0 || free >= bytes+freeMargin {
		return ""
	}
	return fmt.Sprintf("has %s free for %s, and %s are to be sent", formatBytes(free), host.LibraryDir,
		formatBytes(bytes))
}

func formatBytes(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// MachineFacts is a machine to be compared with others.
type MachineFacts struct {
	Address string
	IP      string
	Facts   host.Facts
}

// CompareMachines finds problems that appear only when machines are compared, by address.
func CompareMachines(list []MachineFacts) (errs, warnings map[string][]string) {
	errs, warnings = map[string][]string{}, map[string][]string{}
	alike := func(key func(MachineFacts) string, add func(k MachineFacts, first string)) {
		first := map[string]string{}
		for _, k := range list {
			switch of := key(k); {
			case of == "":
			case first[of] == "":
				first[of] = k.Address
			default:
				add(k, first[of])
			}
		}
	}
	alike(func(k MachineFacts) string {
		if k.Facts.Identity == "" || len(k.Facts.Addresses) == 0 {
			return ""
		}
		return k.Facts.Identity + strings.Join(k.Facts.Addresses, " ")
	}, func(k MachineFacts, first string) {
		errs[k.Address] = append(errs[k.Address],
			"is the same machine as "+first+", by its machine-id, its host keys and its addresses: one block is for "+
				"one machine")
	})
	alike(func(k MachineFacts) string { return k.Facts.MachineID }, func(k MachineFacts, first string) {
		warnings[k.Address] = append(warnings[k.Address],
			"has the same machine-id as "+first+", as copies of a disk have: rm /etc/machine-id && "+
				"systemd-machine-id-setup, and restart it")
	})
	alike(func(k MachineFacts) string { return k.Facts.Hostname }, func(k MachineFacts, first string) {
		warnings[k.Address] = append(warnings[k.Address],
			"has the same host name as "+first+", "+k.Facts.Hostname+": logs cannot distinguish them")
	})
	smallest, address := 0, ""
	for _, k := range list {
		if mtu := k.Facts.MTU[k.IP]; mtu > 0 && (smallest == 0 || mtu < smallest) {
			smallest, address = mtu, k.Address
		}
	}
	for _, k := range list {
		if mtu := k.Facts.MTU[k.IP]; mtu > smallest {
			warnings[k.Address] = append(warnings[k.Address], fmt.Sprintf("its network takes packets of %d bytes, and "+
				"that of %s of %d: large packets of pods between them are lost. Give both the same MTU", mtu, address,
				smallest))
		}
	}
	return errs, warnings
}

func orFallback(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
