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
	Cluster *config.Cluster
	Machine config.Machine
	Facts   host.Facts
	State   *state.State // authorities, and how store members started
	Files   Files
	Release host.Release      // the release of the files
	Closed  bool              // the maintenance window is closed: no upgrades and no reboots
	Revoked map[string][]byte // revocation lists in DER, by authority
}

// Files finds the bundle's files.
type Files interface {
	File(name string) (bundle.File, error)
}

// part is a part of a machine's installation that depends on its roles.
type part struct {
	name  string
	has   func(Input) bool
	steps func(*builder)
	units []string // removed if the machine does not have the part
}

// parts are all parts of a machine. Their order is the order of the steps. A control plane of static pods needs the
// runtime and the kubelet first; one of units does not.
var parts = []part{
	{"proxy-of-packages", always, proxyOfPackages, nil},
	{"system", always, system, nil},
	{"base", always, base, nil},
	{"proxy-of-system", always, systemProxy, nil},
	{"pki", always, pki, nil},
	{"unit-form", Input.units, unitForm, nil},
	{"static-runtime", Input.staticPods, runtime, nil},
	{"static-images", Input.staticPods, images, nil},
	{"static-form", Input.staticPods, staticForm, nil},
	{"static-kubelet", Input.staticPods, kubelet, nil},
	{"etcd", Input.etcd, etcd, nil},
	{"former-etcd", Input.formerEtcd, formerEtcd, nil},
	{"snapshots", Input.snapshots, snapshots, nil},
	{"no-snapshots", Input.noSnapshots, noSnapshots, nil},
	{"api-server", Input.controlPlane, apiServer, []string{"kube-apiserver"}},
	{"runtime", Input.plainNode, runtime, nil},
	{"images", Input.plainNode, images, nil},
	{"controllers", Input.controlPlane, controllers, []string{"kube-scheduler", "kube-controller-manager"}},
	{"metrics", Input.controlPlane, metrics, []string{"metrics-server"}},
	{"kubelet", Input.plainNode, kubelet, []string{"kubelet"}},
	{"proxy", Input.node, proxy, []string{"kube-proxy"}},
	{"network", always, network, []string{"kube-network"}},
	{"dns", Input.dns, dns, []string{"kube-dns"}},
	{"ingress", Input.ingress, ingress, []string{"kube-ingress"}},
	{"address", Input.address, address, []string{"kube-address"}},
}

// Steps returns the steps of a machine in order.
func Steps(in Input) ([]step.Step, error) {
	b := &builder{Input: in}
	for _, p := range parts {
		if p.has(in) {
			p.steps(b)
			continue
		}
		for _, u := range p.units {
			if u == "kubelet" && in.staticPods() {
				continue // an earlier part has added it
			}
			b.add(&step.NoUnit{Name: u + ".service", Path: step.UnitDir + u + ".service"})
			if u == "kubelet" {
				b.add(&step.NoPods{}) // no kubelet manages the remaining pods
			}
		}
	}
	b.add(former(in)...)
	return b.release(append(b.files, b.late...)), b.err
}

// Clean returns the steps that remove everything from a machine.
func Clean() []step.Step {
	var list []step.Step
	for _, name := range []string{snapshotTimer, snapshotService} {
		list = append(list, &step.NoUnit{Name: name, Path: step.UnitDir + name})
	}
	for _, p := range slices.Backward(parts) {
		units := p.units
		if p.name == "etcd" {
			units = []string{"etcd"}
		}
		for _, u := range slices.Backward(units) {
			list = append(list, &step.NoUnit{Name: u + ".service", Path: step.UnitDir + u + ".service"})
		}
	}
	// The runtime is removed first, so that it starts no new containers while the others are stopped.
	list = append(
		list,
		&step.NoUnit{Name: "containerd.service", Path: step.UnitDir + "containerd.service"},
		&step.NoPods{},
		&step.NoNetwork{Network: Network()},
		&step.NoMounts{
			Prefixes: []string{"/var/lib/kubelet/", "/var/lib/containerd/", "/run/containerd/", "/run/netns/cni-"},
		},
		&step.NoFiles{
			Dir:    "/run/netns",
			Prefix: "cni-",
		},
		&step.NoCgroups{Name: "kubepods"},
		&step.FormerSysctls{Given: given()},
	)
	list = append(list, &step.Pruned{Dir: registryDir, File: hostsFile, Written: written})
	for _, path := range []string{etcdData, "/var/lib/kubelet", "/var/lib/containerd"} {
		list = append(list, &step.Empty{Path: path})
	}
	for _, path := range []string{
		Kubernetes, "/etc/cni/net.d", containerdConfig, containerdProxy, "/run/containerd", "/var/log/pods",
		"/var/log/containers", "/var/log/kubernetes",
		"/etc/sysctl.d/90-kubernetes.conf", aptProxy, "/opt/cni/bin", distributionCNI + "/" + bundle.Podlink,
		"/var/lib/cni", "/var/lib/clusterctl", keep.Directory,
	} {
		list = append(list, &step.Absent{Path: path})
	}
	for _, name := range append(append([]string{bundle.Etcd, bundle.Containerd, bundle.Shim, bundle.Runc}, Daemons...),
		bundle.Clusterctl) {
		list = append(list, &step.Absent{Path: bin(name)})
	}
	for _, path := range []string{etcdData, "/var/lib/kubelet", "/var/lib/containerd", "/etc/cni", "/opt/cni",
		"/etc/containerd", "/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd", "/run/netns"} {
		list = append(list, &step.Unused{Path: path})
	}
	return append(list, &step.Absent{Path: host.Turns}, &step.Absent{Path: host.Library})
}

// forwarding6 is the setting that kube-network enables if pods have IPv6 addresses.
const forwarding6 = "net.ipv6.conf.all.forwarding"

// given returns the kernel settings that steps and daemons change on a node.
func given() map[string]string {
	all := maps.Clone(host.Sysctls)
	all[forwarding6] = "1"
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

// Agent reports whether a step of Clean gives no information on whether the machine has anything of the cluster. Such
// steps remove the programs, which include the agent that checks the machine, the record of the last run, and empty
// directories.
func Agent(s step.Step) bool {
	if _, empty := s.(*step.Unused); empty {
		return true
	}
	absent, ok := s.(*step.Absent)
	return ok && (absent.Path == host.Library || absent.Path == host.Turns)
}

func always(Input) bool             { return true }
func (in Input) controlPlane() bool { return in.Machine.Has(config.RoleControlPlane) }
func (in Input) node() bool         { return in.Machine.Has(config.RoleNode) }
func (in Input) plainNode() bool    { return in.node() && !in.staticPods() }
func (in Input) etcd() bool { // Only the control plane has members, and EtcdMachines is slow with many machines.
	return in.controlPlane() && slices.ContainsFunc(EtcdMachines(in.Cluster, in.State), in.is)
}
func (in Input) formerEtcd() bool  { return !in.etcd() }
func (in Input) snapshots() bool   { return in.etcd() && in.Cluster.Etcd.Snapshot != nil }
func (in Input) noSnapshots() bool { return !in.snapshots() }
func (in Input) dns() bool         { return slices.ContainsFunc(DNSMachines(in.Cluster), in.is) }
func (in Input) ingress() bool     { return in.Cluster.HasIngress(in.Machine) }
func (in Input) address() bool     { return in.controlPlane() && in.Cluster.VirtualAddress.IsValid() }
func (in Input) wasControl() bool {
	return in.State.Machines[in.Machine.Address].Machine.Has(config.RoleControlPlane)
}
func (in Input) is(m config.Machine) bool { return m.Name == in.Machine.Name }

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
	for members < len(control) && !c.Etcd.Said {
		if _, has := s.Etcd[control[members].Name]; !has {
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
		if !m.Has(config.RoleControlPlane) {
			list = append(list, m)
		}
	}
	return list
}

// builder collects steps. File steps run before unit steps, so that all files exist when the first unit starts.
type builder struct {
	Input
	files  []step.Step
	late   []step.Step
	chains map[string][]byte // by authority; see chain
	apis   []string          // cached result of apiServers
	held   []step.Held       // daemons that must be well before a release is confirmed, in start order
	err    error
}

func (b *builder) add(steps ...step.Step) { b.files = append(b.files, steps...) }
func (b *builder) run(steps ...step.Step) { b.late = append(b.late, steps...) }

// file adds a file and returns its path.
func (b *builder) file(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content)})
	return path
}

// private adds a file that only root may read, because it shows how the machine is protected. Plans show its content.
func (b *builder) private(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content), Mode: 0o600})
	return path
}

// secret adds a file that only root may read and whose content plans do not show.
func (b *builder) secret(path string, content []byte) string {
	b.add(&step.File{Path: path, Content: content, Mode: 0o600, Secret: true})
	return path
}

// bin returns the path of a program's link.
func bin(name string) string { return "/usr/local/bin/" + name }

// program adds a program of the bundle and returns the path of its link.
func (b *builder) program(name, link string) string {
	f, err := b.Files.File(name)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(&step.Binary{Name: name, Digest: f.Digest, Size: f.Size, Link: link})
	return link
}

// daemon adds the link under which clusterctl runs as a daemon.
func (b *builder) daemon(name string) string {
	f, err := b.Files.File(bundle.Clusterctl)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(&step.Symlink{Path: bin(name), Target: host.Library + "/" + f.Digest + "/" + bundle.Clusterctl})
	return bin(name)
}

// apiServers returns host:port of every API server, this machine's own first.
func (b *builder) apiServers() []string {
	if b.apis != nil {
		return slices.Clone(b.apis)
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
	b.apis = list
	return slices.Clone(list)
}

// server returns the API server's URL in the kubeconfigs of this machine's daemons.
func (b *builder) server() string { return "https://" + b.apiServers()[0] }

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }
