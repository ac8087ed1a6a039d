package plan_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// Obstacles on a machine are found before any change, and reported with a remedy.
// Proves P05.
//
//style:long a table of obstacles, with the report of each
func TestPreflightFindsObstacles(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	const gib = 1 << 30
	controlPlane, node := []string{config.RoleControlPlane}, []string{config.RoleNode}
	for name, c := range map[string]struct {
		roles         []string
		change        func(*host.Facts)
		joined        bool
		error, warned string
	}{
		"well": {controlPlane, func(*host.Facts) {}, false, "", ""},
		"a port that the API server needs": {controlPlane, withListener(6443, "nginx, process 812"), false,
			"port 6443/tcp, which kube-apiserver needs, is in use by nginx, process 812", ""},
		"by nobody knows whom": {controlPlane, withListener(2379, ""), false, "in use by a process that is " +
			"not known", ""},
		"a port that only nodes need":         {controlPlane, withListener(10250, "x"), false, "", ""},
		"on a node":                           {node, withListener(10250, "x"), false, "kubelet needs", ""},
		"a port that only control planes use": {node, withListener(6443, "x"), false, "", ""},
		"a port of the ingress proxy": {node, withListener(80, "apache2"), false, "port 80/tcp, which " +
			"kube-ingress needs", ""},
		"on a machine without it":        {controlPlane, withListener(80, "apache2"), false, "", ""},
		"a port that it has another for": {node, withListener(443, "apache2"), false, "", ""},
		"ports of one that has joined":   {controlPlane, withListener(6443, "x"), true, "", ""},
		"a kernel without a module": {node, func(f *host.Facts) { f.MissingNodeFeatures = []string{"overlay"} }, false,
			"its kernel has no overlay", ""},
		"on a machine without pods": {controlPlane, func(f *host.Facts) { f.MissingNodeFeatures = []string{"overlay"} },
			false,
			"", ""},
		"swap":            {node, func(f *host.Facts) { f.Swap = 2 * gib }, false, "", "2.0 GiB of swap"},
		"swap of no node": {controlPlane, func(f *host.Facts) { f.Swap = gib }, false, "", ""},
		"a controller that is off": {node, func(f *host.Facts) { f.Controllers = []string{"cpu", "pids"} }, false,
			"control group controllers memory off", ""},
		"a kernel that is too old": {node, func(f *host.Facts) { f.Kernel = "3.10.0-1160.el7" }, false,
			"has Linux 3.10.0", ""},
		"a kernel that was not tried": {node, func(f *host.Facts) { f.Kernel = "4.18.0-553.el8" }, false, "",
			"nothing older than 5.10"},
		"a kernel of two digits":     {node, func(f *host.Facts) { f.Kernel = "6.1.0-21-amd64" }, false, "", ""},
		"a kernel without a version": {node, func(f *host.Facts) { f.Kernel = "unknown" }, false, "", ""},
		"a clock far ahead": {node, func(f *host.Facts) { f.Clock = now.Add(400 * 24 * time.Hour) }, true,
			"9600h0m0s ahead of this computer's", ""},
		"a clock behind": {node, func(f *host.Facts) { f.Clock = now.Add(-3 * time.Minute) }, false,
			"3m0s behind", ""},
		"a clock a little off": {node, func(f *host.Facts) { f.Clock = now.Add(5 * time.Second) }, false, "",
			"5s ahead"},
		"no room for etcd": {controlPlane,
			func(f *host.Facts) { f.FreeBytes = map[string]int64{"/var/lib/etcd": 100 << 20} }, false,
			"has 100 MiB free " +
				"for /var/lib/etcd", ""},
		"little room for etcd": {controlPlane,
			func(f *host.Facts) { f.FreeBytes = map[string]int64{"/var/lib/etcd": gib} },
			false, "", "has 1.0 GiB free"},
		"a slow disk": {controlPlane, func(f *host.Facts) { f.SyncDuration = 40 * time.Millisecond }, false, "",
			"its disk takes more than 10ms"},
		"a slow disk of a node": {node, func(f *host.Facts) { f.SyncDuration = 40 * time.Millisecond }, false, "", ""},
		"a system that cannot work": {node, func(f *host.Facts) { f.OS = "alpine 3.20" }, false, "runs alpine " +
			"3.20, which is not supported: it has no systemd", ""},
		"an unknown system": {node, func(f *host.Facts) { f.OS = "plan9 4" }, false, "", "untested"},
		"a relative": {node, func(f *host.Facts) { f.OS, f.OSLike = "rocky 9.4", "rhel centos fedora" },
			false, "", ""},
		"a proxy for all services": {controlPlane,
			func(f *host.Facts) { f.Proxies = map[string]string{"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "x"} },
			true, "", "systemd gives every service a proxy (HTTPS_PROXY=http://p:3128, DefaultEnvironment"},
		"exceptions alone": {controlPlane,
			func(f *host.Facts) { f.Proxies = map[string]string{"NO_PROXY": "x"} }, true, "", ""},
		"a system that is read-only": {node, func(f *host.Facts) { f.ReadOnly = []string{"/usr/local"} }, false,
			"/usr/local cannot be written to", ""},
		"without programs that nobody calls": {node, func(f *host.Facts) { f.MissingPrograms = host.ExternalPrograms },
			false, "", ""},
	} {
		f := host.Facts{
			IsRoot:    true,
			OS:        "debian 12",
			Kernel:    "6.1.0-21-amd64",
			Addresses: []string{"10.0.0.1"},
			Survey:    host.Survey{Clock: now, Controllers: []string{"cpu", "memory", "pids"}},
		}
		c.change(&f)
		m := config.Machine{Address: "machine.a", Name: "a", IP: netip.MustParseAddr("10.0.0.1"), Roles: c.roles}
		s := &state.State{Machines: map[string]state.Machine{"machine.a": {HasJoined: c.joined}}}
		ingress := &config.Ingress{}
		ingress.Settings.Choose("https_port", 8443)
		errs, warnings := plan.Preflight(
			&config.Cluster{Runtime: config.Runtime{Source: config.RuntimeBundle}, Ingress: ingress},
			m,
			f,
			s,
			now,
		)
		for _, got := range []struct {
			what, want string
			list       []string
		}{{"errors", c.error, errs}, {"warnings", c.warned, warnings}} {
			if text := strings.Join(got.list, "\n"); (got.want == "") != (text == "") ||
				!strings.Contains(text, got.want) {
				t.Errorf("%s: %s are %q, want %q", name, got.what, got.list, got.want)
			}
		}
	}
	chains := config.Cluster{}
	chains.Proxy.Choose("mode", "iptables")
	lacks := host.Facts{IsRoot: true, OS: "debian 12", Survey: host.Survey{MissingPrograms: host.ExternalPrograms[:1]}}
	if errs, _ := plan.Preflight(&chains, config.Machine{Roles: node}, lacks, &state.State{}, now); len(errs) != 1 ||
		!strings.Contains(errs[0], "lacks iptables, which") {
		t.Errorf("S28: a mode whose programs are not there: %q", errs)
	}
	chains.System.Packages = []string{"iptables"}
	if errs, _ := plan.Preflight(&chains, config.Machine{Roles: node}, lacks, &state.State{}, now); len(errs) > 0 {
		t.Errorf("S28: a mode whose programs are installed: %q", errs)
	}
	rhel := host.Facts{IsRoot: true, OS: "rocky 9.4", Survey: host.Survey{OSLike: "rhel centos fedora"}}
	errs, _ := plan.Preflight(&config.Cluster{Runtime: config.Runtime{Source: config.RuntimeDistribution}},
		config.Machine{Roles: node}, rhel, &state.State{}, now)
	if len(errs) != 1 || !strings.Contains(errs[0], "packages are not known") {
		t.Errorf("packages of another distribution: %q", errs)
	}
}

func withListener(port int, process string) func(*host.Facts) {
	return func(f *host.Facts) { f.Listening = []host.Listener{{Port: port, Network: "tcp", Process: process}} }
}

func TestSentFilesNeedFreeSpace(t *testing.T) {
	f := host.Facts{Survey: host.Survey{FreeBytes: map[string]int64{host.LibraryDir: 100 << 20}}}
	for bytes, want := range map[int64]string{0: "", 30 << 20: "", 80 << 20: "has 100 MiB free for " +
		"/usr/local/lib/clusterctl, and 80 MiB are to be sent"} {
		if got := plan.SpaceProblem(f, bytes); got != want {
			t.Errorf("%d bytes: %q, want %q", bytes, got, want)
		}
	}
	if got := plan.SpaceProblem(host.Facts{}, 1<<40); got != "" {
		t.Errorf("where room is not known: %q", got)
	}
}

// Conflicts between machines are found.
func TestMachinesAreCompared(t *testing.T) {
	isKnown := func(address, identity, id, hostname, ip string, mtu int) plan.MachineFacts {
		return plan.MachineFacts{
			Address: address,
			IP:      ip,
			Facts: host.Facts{
				Identity:  identity,
				Hostname:  hostname,
				Addresses: []string{ip},
				Survey:    host.Survey{MachineID: id, MTU: map[string]int{ip: mtu}},
			},
		}
	}
	errs, warnings := plan.CompareMachines([]plan.MachineFacts{
		isKnown("machine.a", "x", "1", "a", "10.0.0.1", 1500), isKnown("machine.b", "y", "2", "b", "10.0.0.2", 1500),
		isKnown("machine.c", "x", "1", "c", "10.0.0.1",
			1500), isKnown("machine.d", "z", "2", "b", "10.0.0.4", 1400), {Address: "machine.e"},
	})
	for address, want := range map[string]string{"machine.a": "", "machine.b": "", "machine.c": "is the same machine " +
		"as machine.a", "machine.d": "", "machine.e": ""} {
		if got := strings.Join(errs[address], "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: errors %q, want %q", address, got, want)
		}
	}
	for address, want := range map[string]string{
		"machine.a": "packets of 1500 bytes, and that of machine.d of 1400", "machine.d": "same machine-id as " +
			"machine.b", "machine.e": "",
	} {
		if got := strings.Join(warnings[address], "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q, want %q", address, got, want)
		}
	}
	if got := strings.Join(warnings["machine.d"], "; "); !strings.Contains(got, "same host name as machine.b") {
		t.Errorf("host names: %q", got)
	}
}
