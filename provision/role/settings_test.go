package role_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	daemons "clusterctl/daemons/config"
	"clusterctl/daemons/config/configtest"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// unitFiles returns, for each unit or static pod of a machine, the content of all files whose change restarts it.
func unitFiles(t *testing.T, c *config.Cluster, m config.Machine) map[string]string {
	t.Helper()
	steps, err := role.Steps(
		role.Input{
			Cluster: c,
			Machine: m,
			State:   newState("control"),
			Files:   files{},
			Facts:   host.Facts{CanAdjustOOM: true},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	content, of := map[string]string{}, map[string]string{}
	for _, s := range steps {
		switch s := s.(type) {
		case *step.File:
			content[s.Path] = string(s.Content)
		case *step.Unit:
			for _, path := range s.Files {
				of[s.Name] += path + content[path]
			}
		case *step.StaticPod:
			of[s.Name+".service"] = s.Content
			for _, path := range s.Files {
				of[s.Name+".service"] += path + content[path]
			}
		}
	}
	return of
}

// checkReaches checks that every setting of a block changes the files of its daemon, and of no other.
func checkReaches[T any](t *testing.T, unit string, def T, into func(*config.Cluster) *daemons.Chosen[T]) {
	for _, form := range []string{config.FormSystemd, config.FormStaticPods} {
		make := func() *config.Cluster {
			c := cluster(machine("control", "10.0.0.1", config.RoleControlPlane, config.RoleNode),
				machine("node", "10.0.0.2", config.RoleNode))
			c.ControlPlaneForm, c.Ingress = form, &config.Ingress{}
			c.Objects = []config.Object{{Content: map[string]any{"apiVersion": gitsource.APIVersion,
				"kind": gitsource.Kind}}}
			return c
		}
		plain := make()
		var before []map[string]string
		for _, m := range plain.Machines {
			before = append(before, unitFiles(t, plain, m))
		}
		for _, s := range daemons.Settings(&def) {
			reached, changed := false, make()
			into(changed).Choose(s.Name, configtest.Other(&def, s))
			for i, m := range changed.Machines {
				before, after := before[i], unitFiles(t, changed, m)
				if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
					t.Errorf("%s: another value of it makes other units", s.Name)
				}
				for name := range before {
					if before[name] == after[name] {
						continue
					}
					if reached = reached || name == unit; name != unit {
						t.Errorf("%s of %s restarts %s", s.Name, unit, name)
					}
				}
			}
			if !reached {
				t.Errorf("%s does not reach %s (%s)", s.Name, unit, form)
			}
		}
	}
}

func TestEverySettingReachesItsDaemonAndRestartsNoOther(t *testing.T) {
	checkReaches(t, "kube-scheduler.service", daemons.DefaultScheduler(),
		func(c *config.Cluster) *daemons.Chosen[daemons.Scheduler] { return &c.Scheduler })
	checkReaches(t, "kube-controller-manager.service", daemons.DefaultControllerManager(),
		func(c *config.Cluster) *daemons.Chosen[daemons.ControllerManager] { return &c.Controllers })
	checkReaches(t, "kubelet.service", daemons.DefaultKubeletSettings(),
		func(c *config.Cluster) *daemons.Chosen[daemons.KubeletSettings] { return &c.Kubelet })
	checkReaches(t, "kubelet.service", daemons.DefaultKubeletSettings(),
		func(c *config.Cluster) *daemons.Chosen[daemons.KubeletSettings] { return &c.Machines[1].Kubelet })
	checkReaches(t, "kube-proxy.service", daemons.DefaultProxy(),
		func(c *config.Cluster) *daemons.Chosen[daemons.Proxy] { return &c.Proxy })
	checkReaches(t, "kube-network.service", daemons.DefaultNetwork(),
		func(c *config.Cluster) *daemons.Chosen[daemons.Network] { return &c.Network })
	checkReaches(t, "kube-ingress.service", daemons.DefaultIngress(),
		func(c *config.Cluster) *daemons.Chosen[daemons.Ingress] { return &c.Ingress.Settings })
	checkReaches(t, "gitops-controller.service", daemons.DefaultGitOps(),
		func(c *config.Cluster) *daemons.Chosen[daemons.GitOps] { return &c.GitOps })
	checkReaches(t, "kube-dns.service", daemons.DefaultDNS(),
		func(c *config.Cluster) *daemons.Chosen[daemons.DNS] { return &c.DNS.Settings })
}

func TestKubeletSettingsOfMachinesOverrideTheClusters(t *testing.T) {
	c := cluster(machine("control", "10.0.0.1", config.RoleControlPlane), machine("node", "10.0.0.2", config.RoleNode))
	c.Kubelet.Choose("max_pods", 60)
	c.Kubelet.Choose("pod_pids_limit", 900)
	c.Machines[1].Kubelet.Choose("max_pods", 110) // the default value, set explicitly
	text := unitFiles(t, c, c.Machines[1])["kubelet.service"]
	for _, want := range []string{"\nmaxPods: 110\n", "\npodPidsLimit: 900\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestTheSchedulerReadsItsConfigurationFromAFile(t *testing.T) {
	c := cluster(machine("control", "10.0.0.1", config.RoleControlPlane))
	c.Scheduler.Choose("config", "kind: KubeSchedulerConfiguration\n")
	text := unitFiles(t, c, c.Machines[0])["kube-scheduler.service"]
	if !strings.Contains(text, "--config=/etc/kubernetes/scheduler.yaml") ||
		!strings.HasSuffix(text, "/etc/kubernetes/scheduler.yamlkind: KubeSchedulerConfiguration\n") {
		t.Errorf("the file is %s", text)
	}
}

func TestDNSRunsOnTheDeclaredNumberOfMachines(t *testing.T) {
	c := cluster(machine("control", "10.0.0.1", config.RoleControlPlane), machine("a", "10.0.0.2", config.RoleNode),
		machine("b", "10.0.0.3", config.RoleNode))
	for replicas, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 3, 9: 3} {
		c.DNS.Replicas = replicas
		if got := role.DNSMachines(c); len(got) != want {
			t.Errorf("replicas = %d: %d machines, want %d", replicas, len(got), want)
		}
	}
	c.DNS.Replicas = 1
	c.DNS.Settings.Choose("node_local", true)
	if got := role.DNSMachines(c); len(got) != 3 {
		t.Errorf("node_local: %d machines of 3", len(got))
	}
	if text := unitFiles(t, c, c.Machines[2])["kube-dns.service"]; !strings.Contains(text, "--node-local=true") {
		t.Errorf("the file is %s", text)
	}
}

func TestIngressRunsOnTheSelectedNodes(t *testing.T) {
	edge := machine("edge", "10.0.0.3", config.RoleNode)
	edge.SecondIP = netip.MustParseAddr("fd00::3")
	edge.Labels = map[string]string{"edge": "yes"}
	c := cluster(machine("control", "10.0.0.1", config.RoleControlPlane), machine("node", "10.0.0.2", config.RoleNode),
		edge)
	for name, want := range map[string][]string{"none": nil, "all": {"node", "edge"}, "labelled": {"edge"}} {
		c.Ingress = map[string]*config.Ingress{"all": {},
			"labelled": {NodeSelector: map[string]string{"edge": "yes"}}}[name]
		var got []string
		for _, m := range c.Machines {
			if text, ok := unitFiles(t, c, m)["kube-ingress.service"]; ok {
				got = append(got, m.Name)
				if !strings.Contains(text, "FileDescriptorStoreMax=") ||
					!strings.Contains(text, "--node-ip="+strings.Join(m.IPs(), ",")+" ") {
					t.Errorf("%s: %s", m.Name, text)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: on %v, want %v", name, got, want)
		}
	}
}

// The machines in the state can be decoded, also from the JSON of earlier releases.
func TestMachinesOfEarlierReleasesAreDecoded(t *testing.T) {
	var m config.Machine
	if err := json.Unmarshal([]byte(`{"Name":"node","Kubelet":{"CgroupRoot":"/lab","MaxPods":50,"SystemReserved":null}}`), &m); err != nil ||
		m.Name != "node" ||
		len(m.Kubelet.Names()) > 0 {
		t.Errorf("read as %s, %v", fmt.Sprint(m), err)
	}
}
