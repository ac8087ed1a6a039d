package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostnameAndDomainAreNotRepeated(t *testing.T) {
	yes, override := true, "another.example"
	long := strings.Repeat("long", 10)
	for name, row := range map[string]struct {
		change       func(*corev1.PodSpec)
		kernel, file string // host name of the sandbox, and line in /etc/hosts
		fails        string
	}{
		"plain":      {func(*corev1.PodSpec) {}, "web", "web", ""},
		"of its own": {func(s *corev1.PodSpec) { s.Hostname = "db" }, "db", "db", ""},
		"below a service": {func(s *corev1.PodSpec) { s.Subdomain = "sub" }, "web",
			"web.sub.default.svc.cluster.local\tweb", ""},
		"with its domain": {func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", &yes },
			"web.sub.default.svc.cluster.local", "web.sub.default.svc.cluster.local\tweb", ""},
		"without a domain": {func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = &yes }, "web", "web", ""},
		"overridden":       {func(s *corev1.PodSpec) { s.HostnameOverride = &override }, override, override, ""},
		"with a long domain": {func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = long, &yes }, "", "",
			"is too long (64 characters is the max, 70 characters requested)"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			k := n.newKubelet()
			p := simplePod("web")
			row.change(&p.Spec)
			if row.fails != "" {
				if _, err := (stepRunner{k}).sandboxConfig(p, 0); err == nil ||
					!strings.Contains(err.Error(), row.fails) {
					t.Errorf("the sandbox fails with %v", err)
				}
				return
			}
			if box := n.sandboxOf(k, p); box.Hostname != row.kernel {
				t.Errorf("the sandbox is called %q, want %q", box.Hostname, row.kernel)
			}
			n.runKubelet(k)
			n.create(p)
			n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
			hosts, err := os.ReadFile(filepath.Join(n.cfg.RootDir, "pods", "uid-web", "etc-hosts"))
			if err != nil {
				t.Fatal(err)
			}
			ip := n.pod("web").Status.PodIP
			if want := ip + "\t" + row.file + "\n"; !strings.Contains(string(hosts), want) {
				t.Errorf("the hosts file has no %q:\n%s", want, hosts)
			}
		})
	}
}

func TestOmittedNameServersAreReported(t *testing.T) {
	n := newNode(t)
	n.file.ClusterDNS = []string{"10.96.0.10", "10.96.0.11"}
	n.start()
	p := simplePod("web")
	p.Spec.DNSPolicy = corev1.DNSClusterFirst
	p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}}
	n.create(p)
	n.until("the event", n.hasEvent("DNSConfigForming", "the applied nameserver line is: 10.96.0.10 10.96.0.11 "+
		"10.0.0.1"))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
}
