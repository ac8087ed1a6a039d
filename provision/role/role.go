// Package role defines what is on a machine. For every role it has an ordered list of steps, as a pure function of the
// configuration, the machine's facts, the authorities and the bundle. Package step implements the steps, and package
// run applies them.
package role

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	daemons "clusterctl/daemons/config"
	keep "clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Input holds everything that determines a machine's steps.
type Input struct {
	Cluster        *config.Cluster
	Machine        config.Machine
	Facts          host.Facts
	State          *state.State // authorities, and how store members started
	Files          Files
	Release        host.Release      // the release of the files
	IsWindowClosed bool              // the maintenance window is closed: no upgrades and no reboots
	Revoked        map[string][]byte // revocation lists in DER, by authority
}

// Files finds the bundle's files.
type Files interface {
	File(name string) (bundle.File, error)
}

// part is a part of a machine's installation that depends on its roles.
type part struct {
	name      string
	appliesTo func(Input) bool
	steps     func(*builder)
	units     []string // removed if the machine does not have the part
}

// parts are all parts of a machine. Their order is the order of the steps. A control plane of static pods needs the
// runtime and the kubelet first; one of units does not.
var parts = []part{
	{"proxy-of-packages", always, addPackageProxy, nil},
	{"system", always, addSystemChanges, nil},
	{"base", always, addBase, nil},
	{"proxy-of-system", always, addSystemProxy, nil},
	{"pki", always, addAuthorities, nil},
	{"unit-form", Input.hasUnits, removeStaticPods, nil},
	{"static-runtime", Input.hasStaticPods, addRuntime, nil},
	{"static-images", Input.hasStaticPods, addImages, nil},
	{"static-form", Input.hasStaticPods, addStaticPodImages, nil},
	{"static-kubelet", Input.hasStaticPods, addKubelet, nil},
	{"etcd", Input.hasEtcd, addEtcd, nil},
	{"former-etcd", Input.hasFormerEtcd, removeFormerEtcd, nil},
	{"snapshots", Input.hasSnapshots, addSnapshots, nil},
	{"no-snapshots", Input.hasNoSnapshots, removeSnapshots, nil},
	{"api-server", Input.isControlPlane, addAPIServer, []string{"kube-apiserver"}},
	{"runtime", Input.isPlainNode, addRuntime, nil},
	{"images", Input.isPlainNode, addImages, nil},
	{"controllers", Input.isControlPlane, addControllers, []string{"kube-scheduler", "kube-controller-manager"}},
	{"metrics", Input.isControlPlane, addMetrics, []string{"metrics-server"}},
	{"kubelet", Input.isPlainNode, addKubelet, []string{"kubelet"}},
	{"proxy", Input.isNode, addProxy, []string{"kube-proxy"}},
	{"network", always, addNetwork, []string{"kube-network"}},
	{"dns", Input.hasDNS, addDNS, []string{"kube-dns"}},
	{"ingress", Input.hasIngress, addIngress, []string{"kube-ingress"}},
	{"gitops", Input.hasGitOps, addGitOps, []string{bundle.GitOps}},
	{"dashboard", Input.hasDashboard, addDashboard, []string{dashboardUnit}},
	{"address", Input.hasVirtualAddress, addVirtualAddress, []string{"kube-address"}},
}

// Steps returns the steps of a machine in order.
func Steps(in Input) ([]step.Step, error) {
	b := &builder{Input: in}
	for _, p := range parts {
		if p.appliesTo(in) {
			p.steps(b)
			continue
		}
		for _, u := range p.units {
			if u == "kubelet" && in.hasStaticPods() {
				continue // an earlier part has added it
			}
			b.add(&step.RemoveUnit{Name: u + ".service", Path: step.UnitDir + u + ".service"})
			if u == "kubelet" {
				b.add(&step.StopPods{}) // no kubelet manages the remaining pods
			}
		}
	}
	b.add(former(in)...)
	return b.wrapRelease(append(b.fileSteps, b.unitSteps...)), b.err
}

// Clean returns the steps that remove everything from a machine.
func Clean() []step.Step {
	var list []step.Step
	for _, name := range []string{snapshotTimer, snapshotService} {
		list = append(list, &step.RemoveUnit{Name: name, Path: step.UnitDir + name})
	}
	for _, p := range slices.Backward(parts) {
		units := p.units
		if p.name == "etcd" {
			units = []string{"etcd"}
		}
		for _, u := range slices.Backward(units) {
			list = append(list, &step.RemoveUnit{Name: u + ".service", Path: step.UnitDir + u + ".service"})
		}
	}
	// The runtime is removed first, so that it starts no new containers while the others are stopped.
	list = append(
		list,
		&step.RemoveUnit{Name: "containerd.service", Path: step.UnitDir + "containerd.service"},
		&step.StopPods{},
		&step.ClearNetwork{Network: Network()},
		&step.Unmount{
			Prefixes: []string{"/var/lib/kubelet/", "/var/lib/containerd/", "/run/containerd/", "/run/netns/cni-"},
		},
		&step.RemoveFiles{
			Dir:    "/run/netns",
			Prefix: "cni-",
		},
		&step.RemoveCgroups{Name: "kubepods"},
		&step.RestoreSysctls{Changed: changedSysctls()},
	)
	list = append(list, &step.PruneDirs{Dir: registryDir, File: hostsFile, Written: fileHeader})
	for _, path := range []string{etcdData, "/var/lib/kubelet", "/var/lib/containerd"} {
		list = append(list, &step.Empty{Path: path})
	}
	for _, path := range []string{
		Kubernetes, "/etc/cni/net.d", containerdConfig, containerdProxy, "/run/containerd", "/var/log/pods",
		"/var/log/containers", "/var/log/kubernetes",
		"/etc/sysctl.d/90-kubernetes.conf", aptProxy, "/opt/cni/bin", distributionCNI + "/" + bundle.Podlink,
		"/var/lib/cni", "/var/lib/clusterctl", keep.Directory, gitOpsCacheLink, gitOpsCache,
	} {
		list = append(list, &step.Absent{Path: path})
	}
	for _, name := range append(append([]string{bundle.Etcd, bundle.Containerd, bundle.Shim, bundle.Runc,
		bundle.GitOps}, Daemons...),
		bundle.Clusterctl) {
		list = append(list, &step.Absent{Path: binPath(name)})
	}
	for _, path := range []string{etcdData, "/var/lib/kubelet", "/var/lib/containerd", "/etc/cni", "/opt/cni",
		"/etc/containerd", "/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd", "/run/netns"} {
		list = append(list, &step.RemoveEmpty{Path: path})
	}
	return append(list, &step.Absent{Path: host.RunDir}, &step.Absent{Path: host.LibraryDir})
}

// ipv6Forwarding is the setting that kube-network enables if pods have IPv6 addresses.
const ipv6Forwarding = "net.ipv6.conf.all.forwarding"

// changedSysctls returns the kernel settings that steps and daemons change on a node.
func changedSysctls() map[string]string {
	all := maps.Clone(host.Sysctls)
	all[ipv6Forwarding] = "1"
	return all
}

// formerBridge is the network interface that connected pods in former releases.
const formerBridge = "cni0"

// chains are the names and prefixes of the iptables chains of kube-proxy in its iptables mode, of the portmap plugin
// and of kube-network.
var chains = []string{
	"CNI-HOSTPORT-",
	"CNI-DN-",
	"KUBE-SERVICES",
	"KUBE-EXTERNAL-SERVICES",
	"KUBE-NODEPORTS",
	"KUBE-POSTROUTING",
	"KUBE-MARK-MASQ",
	"KUBE-MARK-OUTSIDE",
	"KUBE-PROXY-FIREWALL",
	"KUBE-FIREWALL",
	"KUBE-SVC-",
	"KUBE-SVL-",
	"KUBE-EXT-",
	"KUBE-SEP-",
	"KUBE-FW-",
	"CLUSTERCTL-FORWARD",
}

// Network returns what kube-network, kube-proxy and the CNI plugins put into the kernel. portmap has a table of its own
// for host ports, unless the machine has iptables.
func Network() host.Network {
	return host.Network{
		Tables: []string{
			"kube-proxy",
			"clusterctl-network",
			"clusterctl-overlay",
			"clusterctl-policy",
			"cni_hostport",
		},
		Chains:   chains,
		Links:    []string{formerBridge, "kube-vxlan"},
		Protocol: host.RouteProtocol,
	}
}

// IsIgnoredByRefresh reports whether a step of Clean gives no information on whether the machine has anything of the
// cluster. Such steps remove the programs, which include the agent that checks the machine, the record of the last run,
// and empty directories.
func IsIgnoredByRefresh(s step.Step) bool {
	if _, empty := s.(*step.RemoveEmpty); empty {
		return true
	}
	absent, ok := s.(*step.Absent)
	return ok && (absent.Path == host.LibraryDir || absent.Path == host.RunDir)
}

func always(Input) bool               { return true }
func (in Input) isControlPlane() bool { return in.Machine.HasRole(config.RoleControlPlane) }
func (in Input) isNode() bool         { return in.Machine.HasRole(config.RoleNode) }
func (in Input) isPlainNode() bool    { return in.isNode() && !in.hasStaticPods() }
func (in Input) hasEtcd() bool { // Only the control plane has members, and EtcdMachines is slow with many machines.
	return in.isControlPlane() && slices.ContainsFunc(EtcdMachines(in.Cluster, in.State), in.isMachine)
}
func (in Input) hasFormerEtcd() bool  { return !in.hasEtcd() }
func (in Input) hasSnapshots() bool   { return in.hasEtcd() && in.Cluster.Etcd.Snapshot != nil }
func (in Input) hasNoSnapshots() bool { return !in.hasSnapshots() }
func (in Input) hasDNS() bool         { return slices.ContainsFunc(DNSMachines(in.Cluster), in.isMachine) }
func (in Input) hasIngress() bool     { return in.Cluster.HasIngress(in.Machine) }
func (in Input) hasVirtualAddress() bool {
	return in.isControlPlane() && in.Cluster.VirtualAddress.IsValid()
}
func (in Input) wasControlPlane() bool {
	return in.State.Machines[in.Machine.Address].Machine.HasRole(config.RoleControlPlane)
}
func (in Input) isMachine(m config.Machine) bool { return m.Name == in.Machine.Name }

// EtcdMachines returns the machines of the control plane with a store member. Machines that have a member keep it
// before others get one, so that members do not move needlessly. A member is also not removed to make the number odd,
// unless the configuration sets the number. Two members, like one, survive no loss of a machine, but they survive the
// loss of a disk.
func EtcdMachines(c *config.Cluster, s *state.State) []config.Machine {
	control := c.ControlPlane()
	slices.SortStableFunc(control, func(a, b config.Machine) int {
		_, hasA := s.Etcd[a.Name]
		_, hasB := s.Etcd[b.Name]
		switch {
		case hasA && !hasB:
			return -1
		case hasB && !hasA:
			return 1
		}
		return 0
	})
	members := c.Etcd.Members
	for members < len(control) && !c.Etcd.MembersSet {
		if _, ok := s.Etcd[control[members].Name]; !ok {
			break
		}
		members++
	}
	return control[:min(members, len(control))]
}

// DNSMachines returns the machines that run kube-dns: the control plane and as many nodes as are needed for the wanted
// number; or, in node-local mode, all machines.
func DNSMachines(c *config.Cluster) []config.Machine {
	var settings daemons.DNS
	if c.DNS.Settings.Over(&settings); settings.NodeLocal {
		return c.Machines
	}
	list, enough := c.ControlPlane(), cmp.Or(c.DNS.Replicas, config.DNSReplicas)
	for _, m := range c.Machines {
		if len(list) >= enough {
			break
		}
		if !m.HasRole(config.RoleControlPlane) {
			list = append(list, m)
		}
	}
	return list
}

// builder collects steps. File steps run before unit steps, so that all files exist when the first unit starts.
type builder struct {
	Input
	fileSteps     []step.Step
	unitSteps     []step.Step
	chains        map[string][]byte // by authority; see chain
	apiServerList []string          // cached result of apiServers
	heldDaemons   []step.HeldDaemon // daemons that must be well before a release is confirmed, in start order
	err           error
}

func (b *builder) add(steps ...step.Step)         { b.fileSteps = append(b.fileSteps, steps...) }
func (b *builder) addUnitStep(steps ...step.Step) { b.unitSteps = append(b.unitSteps, steps...) }

// addFile adds a file and returns its path.
func (b *builder) addFile(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content)})
	return path
}

// addPrivateFile adds a file that only root may read, because it shows how the machine is protected. Plans show its
// content.
func (b *builder) addPrivateFile(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content), Mode: 0o600})
	return path
}

// addSecretFile adds a file that only root may read and whose content plans do not show.
func (b *builder) addSecretFile(path string, content []byte) string {
	b.add(&step.File{Path: path, Content: content, Mode: 0o600, Secret: true})
	return path
}

// binPath returns the path of a program's link.
func binPath(name string) string { return "/usr/local/bin/" + name }

// addProgram adds a program of the bundle and returns the path of its link.
func (b *builder) addProgram(name, link string) string {
	f, err := b.Files.File(name)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(&step.Binary{Name: name, Digest: f.Digest, Size: f.Size, Link: link})
	return link
}

// addDaemon adds the link under which clusterctl runs as a daemon.
func (b *builder) addDaemon(name string) string {
	f, err := b.Files.File(bundle.Clusterctl)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(&step.Symlink{Path: binPath(name), Target: host.LibraryDir + "/" + f.Digest + "/" + bundle.Clusterctl})
	return binPath(name)
}

// apiServers returns host:port of every API server, this machine's own first.
func (b *builder) apiServers() []string {
	if b.apiServerList != nil {
		return slices.Clone(b.apiServerList)
	}
	var list []string
	for _, m := range b.Cluster.ControlPlane() {
		address := net.JoinHostPort(m.IP.String(), "6443")
		if m.Name == b.Machine.Name {
			list = append([]string{address}, list...)
		} else {
			list = append(list, address)
		}
	}
	b.apiServerList = list
	return slices.Clone(list)
}

// apiServerURL returns the API server's URL in the kubeconfigs of this machine's daemons.
func (b *builder) apiServerURL() string { return "https://" + b.apiServers()[0] }

func toStrings[T fmt.Stringer](list []T) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

func joinLines(list ...string) string { return strings.Join(list, "\n") + "\n" }
