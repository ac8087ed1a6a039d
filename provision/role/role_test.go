package role_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type files struct{}

func (files) File(name string) (bundle.File, error) {
	return bundle.File{Name: name, Digest: "d-" + name, Size: 1}, nil
}

func cluster(machines ...config.Machine) *config.Cluster {
	c := &config.Cluster{
		Name:     "home",
		Domain:   "cluster.local",
		Machines: machines,
		Runtime:  config.Runtime{Source: config.RuntimeBundle},
		PodCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"),
		},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	c.Etcd.Members = config.EtcdMembers(len(c.ControlPlane()))
	return c
}

func machine(name, ip string, roles ...string) config.Machine {
	return config.Machine{Address: "machine." + name, Name: name, IP: netip.MustParseAddr(ip), Roles: roles}
}

func newState(members ...string) *state.State {
	s := &state.State{
		Token:    "token",
		Machines: map[string]state.Machine{},
		Etcd:     map[string]state.Member{},
		CAs:      map[string][]byte{certs.ClusterCA: []byte("ca\n")},
	}
	for _, m := range members {
		s.Etcd[m] = state.Member{InitialCluster: m + "=https://10.0.0.1:2380"}
	}
	return s
}

// render writes steps in a form for review: the labels in order, and files with their content.
func render(t *testing.T, steps []step.Step) string {
	t.Helper()
	out := &strings.Builder{}
	for _, s := range steps {
		fmt.Fprintln(out, s.Label())
		switch s := s.(type) {
		case *step.File:
			if !s.Secret {
				fmt.Fprint(out, "  | "+strings.ReplaceAll(strings.TrimSuffix(string(s.Content), "\n"), "\n", "\n  | ")+
					"\n")
			}
		case *step.Certificate:
			fmt.Fprintf(out, "  by %s for %s %v %v\n", s.CA, s.Request.CommonName, s.Request.Organizations,
				s.Request.Hosts)
		case *step.Kubeconfig:
			fmt.Fprintf(out, "  at %s for %s %v\n", s.Server, s.Request.CommonName, s.Request.Organizations)
		default:
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(out, "  %s\n", text)
		}
	}
	return out.String()
}

// The golden files contain everything that a machine gets, for review.
// Proves P05.
func TestStepsOfMachines(t *testing.T) {
	control, node := machine("control", "10.0.0.1", config.RoleControlPlane), machine("node", "10.0.0.2",
		config.RoleNode)
	node.Labels = map[string]string{"topology.kubernetes.io/zone": "a", "node-role.kubernetes.io/web": ""}
	node.Taints = []config.Taint{{Key: "dedicated", Value: "web", Effect: "NoSchedule"}}
	node.Kubelet.Choose("cgroup_root", "/lab")
	node.Kubelet.Choose("max_pods", 50)
	c := cluster(control, node)
	for _, m := range []config.Machine{control, node} {
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("control"), Files: files{},
			Facts: host.Facts{CanAdjustOOM: true, FrozenSysctls: []string{"kernel.panic"}}})
		if err != nil {
			t.Fatal(err)
		}
		path, got := "testdata/"+m.Name+".golden", render(t, steps)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from %s; go test -update rewrites it. Got:\n%s", m.Name, path, got)
		}
	}
}

// The number of etcd members follows from the number of machines.
// Proves S10.
func TestEtcdHasAnOddNumberOfMembersUpToSeven(t *testing.T) {
	for machines, want := range map[int]int{0: 0, 1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 5, 7: 7, 8: 7, 20: 7} {
		if got := config.EtcdMembers(machines); got != want {
			t.Errorf("%d machines: %d members, want %d", machines, got, want)
		}
	}
}

// A new machine that is declared before a machine with a member does not take over the member.
func TestMembersStayOnTheirMachines(t *testing.T) {
	first, second := machine("first", "10.0.0.1", config.RoleControlPlane), machine("second", "10.0.0.2",
		config.RoleControlPlane)
	got := role.EtcdMachines(cluster(first, second), newState("second"))
	if len(got) != 1 || got[0].Name != "second" {
		t.Errorf("members %v, want second", got)
	}
}

func TestStepsCanBeEncoded(t *testing.T) {
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	steps, err := role.Steps(role.Input{Cluster: cluster(m), Machine: m, State: newState("one"), Files: files{}})
	if err != nil {
		t.Fatal(err)
	}
	steps = append(steps, role.Clean()...)
	var way bytes.Buffer
	if err := step.Pack(json.NewEncoder(&way), steps); err != nil {
		t.Fatal(err)
	}
	back, err := step.Unpack(json.NewDecoder(&way))
	if err != nil {
		t.Fatal(err)
	}
	if render(t, back) != render(t, steps) {
		t.Error("steps are others after the way")
	}
}

// The AuthenticationConfiguration decides whether port 6443 accepts anonymous requests. So the kubelet probes a static
// API server on another port, and clusterctl uses a certificate.
// Proves S12, S15.
func TestStaticAPIServersAreProbedWithoutCredentials(t *testing.T) {
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	c := cluster(m)
	c.ControlPlaneForm = config.FormStaticPods
	c.API.Authentication = "kind: AuthenticationConfiguration"
	steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("one"), Files: files{}})
	if err != nil {
		t.Fatal(err)
	}
	var requests []host.Client
	for _, s := range steps {
		switch s := s.(type) {
		case *step.StaticPod:
			if s.Name != "kube-apiserver" {
				continue
			}
			requests = append(requests, s.Client)
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(s.Content), &pod); err != nil {
				t.Fatal(err)
			}
			api := pod.Spec.Containers[0]
			if !slices.Contains(api.Command, "--healthz-bind-address=127.0.0.1:6080") {
				t.Errorf("the command is %q", api.Command)
			}
			for path, probe := range map[string]*corev1.Probe{"/livez": api.LivenessProbe,
				"/readyz": api.ReadinessProbe} {
				want := corev1.HTTPGetAction{Host: "127.0.0.1", Path: path, Port: intstr.FromInt32(6080),
					Scheme: corev1.URISchemeHTTP}
				if got := *probe.HTTPGet; !reflect.DeepEqual(got, want) {
					t.Errorf("it is probed at %+v, want %+v", got, want)
				}
			}
		case *step.AwaitReload:
			requests = append(requests, s.Client)
		}
	}
	if len(requests) != 2 || requests[0] != role.ServerClient || requests[1] != role.ServerClient ||
		role.ServerClient.Cert == "" {
		t.Errorf("it is asked as %+v", requests)
	}
}

// A static API server can reach the socket of its KMS plugin, and only the encryption configuration names the plugin.
// Proves S10, S15.
func TestAStaticAPIServerReachesItsKMSPlugin(t *testing.T) {
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	c := cluster(m)
	c.ControlPlaneForm = config.FormStaticPods
	c.Encryption = config.Encryption{
		Provider:  "kms",
		Key:       "vault",
		Endpoint:  "unix:///run/kms.d/plugin.sock",
		Resources: []string{"secrets"},
	}
	own := newState("one")
	if err := own.Keys.Encryption.Add(c.Encryption, true); err != nil {
		t.Fatal(err)
	}
	file, err := role.Encryption(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kms:", "apiVersion: v2", "name: vault", "endpoint: unix:///run/kms.d/plugin.sock"} {
		if !strings.Contains(string(file.Content), want) {
			t.Errorf("the file lacks %q: %s", want, file.Content)
		}
	}
	steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: own, Files: files{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if pod, ok := s.(*step.StaticPod); ok &&
			strings.Contains(pod.Content, "/run/kms.d") != (pod.Name == "kube-apiserver") {
			t.Errorf("%s is given %s", pod.Name, pod.Content)
		}
		if pod, ok := s.(*step.StaticPod); ok && pod.Name == "kube-apiserver" &&
			!strings.Contains(pod.Content, "path: /run/kms.d\n      type: Directory\n") {
			t.Errorf("the socket's folder is not shared: %s", pod.Content)
		}
	}
}

// containerd pulls through a proxy. The password of the proxy is only in files that other users cannot read, and not in
// the plan. Adding another machine does not restart containerd.
// Proves S36.
func TestContainerdPullsThroughAProxy(t *testing.T) {
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	c := cluster(m)
	c.Runtime.Proxy = &config.Proxy{
		HTTPS:   "http://jo:secret@proxy.example.com:3128",
		NoProxy: []string{"registry.example.com"},
	}
	environment := func() (file *step.File) {
		t.Helper()
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("one"), Files: files{}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			switch s := s.(type) {
			case *step.File:
				if s.Path == "/etc/containerd/clusterctl-proxy.env" {
					file = s
				} else if strings.Contains(string(s.Content), "secret@") {
					t.Errorf("%s has the proxy's password", s.Path)
				}
				if s.Path == "/etc/systemd/system/containerd.service" &&
					!strings.Contains(string(s.Content), "EnvironmentFile=/etc/containerd/clusterctl-proxy.env\n") {
					t.Errorf("the unit does not read it:\n%s", s.Content)
				}
			case *step.Unit:
				if s.Name == "containerd.service" && !slices.Contains(s.Files, "/etc/containerd/clusterctl-proxy.env") {
					t.Errorf("a change does not restart it: %q", s.Files)
				}
			}
		}
		return file
	}
	first := environment()
	if first == nil || first.Mode != 0o600 || !first.Secret {
		t.Fatalf("it is in %+v", first)
	}
	for _, want := range []string{"HTTPS_PROXY=http://jo:secret@proxy.example.com:3128\n", "HTTP_PROXY=\n",
		"NO_PROXY=localhost,127.0.0.0/8,::1,.svc,.cluster.local,", ",registry.example.com\n"} {
		if !strings.Contains(string(first.Content), want) {
			t.Errorf("%q is not in\n%s", want, first.Content)
		}
	}
	c.Machines = append(c.Machines, machine("two", "10.0.0.2", config.RoleNode))
	if !bytes.Equal(environment().Content, first.Content) {
		t.Error("another machine changes it")
	}
}

func TestTheDistributionRuntimeReplacesTheBundledOne(t *testing.T) {
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	c := cluster(m)
	c.Runtime.Source = config.RuntimeDistribution
	steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("one"), Files: files{}})
	if err != nil {
		t.Fatal(err)
	}
	own := &hostfake.Host{}
	write := func(path, text string) {
		if err := own.WriteFile(path, strings.NewReader(text), 0o644, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	const unit = "/etc/systemd/system/containerd.service"
	for _, test := range []struct {
		name, unit, link string
		goes             bool
	}{
		{"of the bundle", "# written by clusterctl: changes\n[Unit]\n", host.LibraryDir + "/digest/containerd", true},
		{"of somebody else", "[Unit]\n", "/opt/containerd/bin/containerd", false},
	} {
		write(unit, test.unit)
		if err := own.Symlink(test.link, "/usr/local/bin/containerd"); err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			switch s := s.(type) {
			case *step.RemoveUnit, *step.Absent:
				if label := s.Label(); label != "no unit containerd.service" &&
					label != "no /usr/local/bin/containerd" {
					continue
				}
				c, err := s.Check(t.Context(), own, &step.Walk{})
				if err != nil || (c.Action != "") != test.goes {
					t.Errorf("%s, %s: %+v, %v", test.name, s.Label(), c, err)
				}
			}
		}
	}
	for i, s := range steps {
		if u, ok := s.(*step.Unit); ok && u.Name == "containerd.service" {
			if before, ok := steps[i-1].(*step.Absent); !ok || before.LinkInto == "" {
				t.Errorf("containerd starts after %s, before the bundle's is gone", steps[i-1].Label())
			}
		}
	}
}
