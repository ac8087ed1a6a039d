package role

import (
	"clusterctl/provision/step"
)

// holding lists files that only some machines have. They are removed from other machines: with the keys of the control
// plane, a worker could take over the cluster.
type holding struct {
	has   func(Input) bool
	paths []string
}

var holdings = []holding{
	{Input.controlPlane, []string{
		PKI + "/ca.key", PKI + "/etcd", PKI + "/front-proxy-ca.crt", PKI + "/front-proxy-ca.key", PKI + "/sa.key", PKI +
			"/sa.pub",
		encryptionFile, apiCRL, settings, schedulerConfig,
	}},
	{
		Input.controlPlane,
		pairs(
			"apiserver",
			kubeletClient,
			etcdClient,
			"front-proxy-client",
			"kube-scheduler",
			"kube-controller-manager",
			"metrics-server",
		),
	},
	{Input.controlPlane, kubeconfigs("admin", "super-admin", "scheduler", "controller-manager", "metrics-server")},
	{Input.etcd, pairs("etcd/server", "etcd/peer")},
	{Input.snapshots, []string{SnapshotSettings, snapshotCA}},
	{Input.address, kubeconfigs("address")},
	{Input.kubelet, append(pairs("kubelet"), nodeCredential, kubeletConfig, providersFile)},
	{Input.node, kubeconfigs("proxy")},
	{Input.dns, kubeconfigs("dns")},
	{Input.ingress, kubeconfigs("ingress")},
}

func pairs(names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, PKI+"/"+name+".crt", PKI+"/"+name+".key")
	}
	return paths
}

func kubeconfigs(names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, Kubernetes+"/"+name+".conf")
	}
	return paths
}

// former returns the steps that remove the files that a machine should not have. They run after the daemons that read
// them have stopped.
func former(in Input) (steps []step.Step) {
	if !in.kubelet() {
		steps = append(steps, &step.Pruned{Dir: registryDir, File: hostsFile, Written: written},
			&step.Absent{Path: registryUsers, Written: usersMark, NoCopy: true})
	}
	for _, h := range holdings {
		if h.has(in) {
			continue
		}
		for _, path := range h.paths {
			steps = append(steps, &step.Absent{Path: path, NoCopy: true})
		}
	}
	return steps
}

func (in Input) kubelet() bool { return in.node() || in.staticPods() }
