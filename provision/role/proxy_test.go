package role_test

import (
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// fileTexts returns the content of the files and static pods of a machine, by path.
func fileTexts(t *testing.T, in role.Input) map[string]string {
	t.Helper()
	steps, err := role.Steps(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, s := range steps {
		switch s := s.(type) {
		case *step.File:
			files[s.Path] = string(s.Content)
		case *step.StaticPod:
			files[s.Path] = s.Content
		}
	}
	return files
}

func TestClusterDaemonsIgnoreSystemdProxies(t *testing.T) {
	m := machine("m", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	outside := []string{"containerd", "kubelet", "kube-apiserver", "etcd-snapshot"}
	inside := []string{"etcd", "kube-scheduler", "kube-controller-manager", "metrics-server", "kube-proxy",
		"kube-network", "kube-dns"}
	found := map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "intranet.example, 10.0.0.0/8,bad\"one"}
	declared := &config.Proxy{HTTP: "http://me:secret@proxy:3128", HTTPS: "http://me:secret@proxy:3128",
		NoProxy: []string{"mirror.example", ".corp.example", "10.0.0.0/8"}}
	for _, c := range []struct {
		name    string
		facts   map[string]string
		proxy   *config.Proxy
		outside []string // text in the units that connect to hosts outside the cluster
	}{
		{"none", nil, nil, nil},
		{"systemd's", found, nil, []string{`Environment="NO_PROXY=localhost,127.0.0.0/8,::1,.svc,.cluster.local,` +
			`10.0.0.1,10.244.0.0/16,10.96.0.0/16,intranet.example,10.0.0.0/8" "no_proxy=localhost,`}},
		{"declared", found, declared, []string{"EnvironmentFile=/etc/", "UnsetEnvironment=ALL_PROXY all_proxy"}},
	} {
		cl := cluster(m)
		cl.System.Proxy = c.proxy
		cl.Etcd.Snapshot = &config.Snapshot{Directory: "/var/lib/snapshots"}
		facts := host.Facts{CanAdjustOOM: true, OS: "debian 12"}
		facts.Proxies = c.facts
		files := fileTexts(t, role.Input{Cluster: cl, Machine: m, State: newState("m"), Files: files{}, Facts: facts})
		for _, name := range inside {
			if text := files[step.UnitDir+name+".service"]; !strings.Contains(text,
				"\nUnsetEnvironment=HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy "+
					"no_proxy\n") {
				t.Errorf("%s: the unit of %s may use a proxy:\n%s", c.name, name, text)
			}
		}
		for _, name := range outside {
			text := files[step.UnitDir+name+".service"]
			for _, want := range c.outside {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the unit of %s does not contain %s:\n%s", c.name, name, want, text)
				}
			}
			if text == "" || strings.Contains(text, "UnsetEnvironment=HTTP_PROXY") ||
				strings.Contains(text, "secret") || c.outside == nil && strings.Contains(text, "PROXY") {
				t.Errorf("%s: wrong proxy settings in the unit of %s:\n%s", c.name, name, text)
			}
		}
		if c.proxy == nil {
			continue
		}
		for path, want := range map[string]string{
			host.ProxyFile: "https_proxy=http://me:secret@proxy:3128\nNO_PROXY=localhost,127.0.0.0/8,::1,.svc," +
				".cluster.local,10.0.0.1,10.244.0.0/16,10.96.0.0/16,mirror.example,.corp.example,10.0.0.0/8\n",
			"/etc/containerd/clusterctl-proxy.env": "HTTPS_PROXY=http://me:secret@proxy:3128\n",
			"/etc/apt/apt.conf.d/90clusterctl-proxy": "Acquire::http::Proxy " +
				"\"http://me:secret@proxy:3128\";\nAcquire::http::Proxy::mirror.example \"DIRECT\";\nAcquire::https::",
		} {
			if !strings.Contains(files[path], want) {
				t.Errorf("%s does not contain %q:\n%s", path, want, files[path])
			}
		}
		cl.Runtime.Proxy = &config.Proxy{HTTPS: "http://other:3128"}
		files = fileTexts(t, role.Input{Cluster: cl, Machine: m, State: newState("m"), Files: filesOf{}, Facts: facts})
		if text := files["/etc/containerd/clusterctl-proxy.env"]; !strings.Contains(text,
			"HTTPS_PROXY=http://other:3128\n") {
			t.Errorf("the runtime's own proxy is not used:\n%s", text)
		}
		cl.ControlPlaneForm = config.FormStaticPods
		files = fileTexts(t, role.Input{Cluster: cl, Machine: m, State: newState("m"), Files: filesOf{}, Facts: facts})
		if text := files[step.Manifest("kube-apiserver")]; !strings.Contains(text, "name: HTTPS_PROXY") {
			t.Errorf("an API server that is a static pod has no proxy:\n%s", text)
		}
	}
}

// A new machine that reaches the package archive only through the declared proxy can install its packages.
func TestPackagesUseTheDeclaredProxy(t *testing.T) {
	m := machine("m", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	cl := cluster(m)
	cl.System.Packages, cl.System.Proxy = []string{"nfs-common"}, &config.Proxy{HTTP: "http://proxy:3128"}
	steps, err := role.Steps(role.Input{Cluster: cl, Machine: m, State: newState("m"), Files: filesOf{},
		Facts: host.Facts{CanAdjustOOM: true, OS: "debian 12"}})
	if err != nil {
		t.Fatal(err)
	}
	isKnown := false
	for _, s := range steps {
		switch s := s.(type) {
		case *step.File:
			isKnown = isKnown || s.Path == "/etc/apt/apt.conf.d/90clusterctl-proxy"
		case *step.Package:
			if !isKnown {
				t.Errorf("%s is installed before the proxy is known", s.Name)
			}
		}
	}
	if !isKnown {
		t.Error("the configuration of apt lacks the proxy")
	}
}

type filesOf = files
