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
	dashboardUnit,
}

// addBase adds what every machine has: the program and the kernel settings. Settings that cannot be written on this
// machine, for example in a container, are left out; preflight reports them.
func addBase(b *builder) {
	b.addProgram(bundle.Clusterctl, binPath(bundle.Clusterctl))
	b.add(&step.Directory{Path: Kubernetes}, &step.Directory{Path: step.MarkerDir})
	if !b.isNode() {
		return
	}
	text := []string{"# written by clusterctl"}
	for _, name := range slices.Sorted(maps.Keys(host.Sysctls)) {
		text = append(text, name+" = "+host.Sysctls[name])
		if !slices.Contains(b.Facts.FrozenSysctls, name) {
			b.add(&step.Sysctl{Name: name, Value: host.Sysctls[name]})
		}
	}
	b.add(&step.SavedSysctl{Name: ipv6Forwarding, Unless: "kubelet.service"})
	b.addFile("/etc/sysctl.d/90-kubernetes.conf", joinLines(text...))
}

func newDirectory(path string, mode fs.FileMode) step.Step {
	return &step.Directory{Path: path, Mode: mode}
}
