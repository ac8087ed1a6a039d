// Package role says what makes a machine what it is: for every role an ordered list of
// steps, a pure function of the configuration, the machine's facts, the authorities and
// the bundle. What steps do is provision/step's; when they are walked, provision/run's.
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

// Input is everything that decides what goes on a machine.
type Input struct {
	Cluster *config.Cluster
	Machine config.Machine
	Facts   host.Facts
	State   *state.State // authorities, and how etcd members started
	Files   Files
	Release host.Release      // what the files are
	Closed  bool              // neither upgrades nor reboots now: the window for them is closed
	Revoked map[string][]byte // by authority: its list of revoked certificates, DER
}

// Files finds the bundle's files.
type Files interface {
	File(name string) (bundle.File, error)
}

// part is a piece of a machine that is there when the machine has one of its roles.
type part struct {
	name  string
	has   func(Input) bool
	steps func(*builder)
	units []string // removed where the part is not
}

// parts is every machine from top to bottom: the order is the order of the steps. A control
// plane of static pods needs the runtime and the kubelet first, one of units does not.
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
				continue // it is there, earlier
			}
			b.add(&step.NoUnit{Name: u + ".service", Path: step.UnitDir + u + ".service"})
			if u == "kubelet" {
				b.add(&step.NoPods{}) // what ran there has nobody who looks after it
			}
		}
	}
	b.add(former(in)...)
	return b.release(append(b.files, b.late...)), b.err
}

// Clean returns the steps that take everything away again from a machine.
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
	// Without a runtime no new container comes up behind the back of who ends them.
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

// forwarding6 is turned on by the network's daemon where pods have addresses of IPv6.
const forwarding6 = "net.ipv6.conf.all.forwarding"

// given are the kernel settings that a node has got, by steps and by what runs there.
func given() map[string]string {
	all := maps.Clone(host.Sysctls)
	all[forwarding6] = "1"
	return all
}

// formerBridge is what pods were on by former releases.
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

// Network is what the network's daemon, the proxy and the CNI plugins put into the kernel. portmap has a table of its
// own for the ports of pods that their machine has, unless there is iptables on it.
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

// Agent reports whether a step of Clean says nothing about whether anything of the cluster is on a machine: it takes
// away the programs themselves, of which the one that looks at the machine is one, who has been at work there, or a
// directory that is empty.
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
func (in Input) etcd() bool { // only the control plane has members, and asking for them looks at every machine
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

// EtcdMachines are the machines of the control plane with a member of the store. Those that have one keep it before
// others get one: a member never moves without need. Nor does one go for the sake of an odd number, unless the
// configuration says how many there are: two survive no loss of a machine, as one does not, but of a disk.
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

// DNSMachines are the machines that answer for the cluster's names: the control
// plane's, and nodes until there are enough; or all of them, each for its own pods.
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

// builder collects steps. Files come first and units late, so that a machine has
// everything before the first unit starts.
type builder struct {
	Input
	files  []step.Step
	late   []step.Step
	chains map[string][]byte // by authority
	apis   []string          // what apiServers returns
	held   []step.Held       // daemons that have to be well, in the order in which they start
	err    error
}

func (b *builder) add(steps ...step.Step) { b.files = append(b.files, steps...) }
func (b *builder) run(steps ...step.Step) { b.late = append(b.late, steps...) }

// file adds a file and returns its path.
func (b *builder) file(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content)})
	return path
}

// private adds a file that only root may read: it says how the machine is guarded, and is shown in plans.
func (b *builder) private(path, content string) string {
	b.add(&step.File{Path: path, Content: []byte(content), Mode: 0o600})
	return path
}

// secret adds a file that only root may read and nobody sees in a plan.
func (b *builder) secret(path string, content []byte) string {
	b.add(&step.File{Path: path, Content: content, Mode: 0o600, Secret: true})
	return path
}

// bin is where programs are linked.
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

// daemon adds the link by which clusterctl is a daemon.
func (b *builder) daemon(name string) string {
	f, err := b.Files.File(bundle.Clusterctl)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(&step.Symlink{Path: bin(name), Target: host.Library + "/" + f.Digest + "/" + bundle.Clusterctl})
	return bin(name)
}

// apiServers is host:port of every API server, this machine's own first.
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

// server is the URL in the kubeconfigs of this machine's daemons.
func (b *builder) server() string { return "https://" + b.apiServers()[0] }

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }
