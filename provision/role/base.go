package role

import (
	"io/fs"
	"maps"
	"slices"

	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// Daemons are the names under which clusterctl runs as a daemon.
var Daemons = []string{
	"kube-apiserver",
	"kube-scheduler",
	"kube-controller-manager",
	"kubelet",
	"kube-network",
	"kube-proxy",
	"kube-dns",
	"kube-ingress",
	"kube-address",
	"metrics-server",
}

// base adds what every machine has: the program and the kernel settings. Settings that cannot be written on this
// machine, for example in a container, are left out; preflight reports them.
func base(b *builder) {
	b.program(bundle.Clusterctl, bin(bundle.Clusterctl))
	b.add(&step.Directory{Path: Kubernetes}, &step.Directory{Path: step.Markers})
	if !b.node() {
		return
	}
	text := []string{"# written by clusterctl"}
	for _, name := range slices.Sorted(maps.Keys(host.Sysctls)) {
		text = append(text, name+" = "+host.Sysctls[name])
		if !slices.Contains(b.Facts.SysctlFrozen, name) {
			b.add(&step.Sysctl{Name: name, Value: host.Sysctls[name]})
		}
	}
	b.add(&step.NotedSysctl{Name: forwarding6, Unless: "kubelet.service"})
	b.file("/etc/sysctl.d/90-kubernetes.conf", lines(text...))
}

func directory(path string, mode fs.FileMode) step.Step {
	return &step.Directory{Path: path, Mode: mode}
}
