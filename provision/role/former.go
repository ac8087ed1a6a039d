package role

import (
	"clusterctl/provision/bundle"
	"clusterctl/provision/step"
)

// restrictedFiles lists files and directories that only some machines have. They are removed from other machines: with
// the keys of the control plane, a worker could take over the cluster.
type restrictedFiles struct {
	mayHave func(Input) bool
	paths   []string
}

var restrictedFileLists = []restrictedFiles{
	{Input.isControlPlane, []string{
		PKI + "/ca.key", PKI + "/etcd", PKI + "/front-proxy-ca.crt", PKI + "/front-proxy-ca.key", PKI + "/sa.key", PKI +
			"/sa.pub",
		encryptionFile, apiCRL, apiServerDir, schedulerConfig,
	}},
	{
		Input.isControlPlane,
		keyPairPaths("apiserver", kubeletClient, etcdClient, "front-proxy-client", "kube-scheduler",
			"kube-controller-manager", "metrics-server"),
	},
	{Input.isControlPlane, kubeconfigPaths("admin", "super-admin", "scheduler", "controller-manager",
		"metrics-server")},
	{Input.hasEtcd, keyPairPaths("etcd/server", "etcd/peer")},
	{Input.hasSnapshots, []string{SnapshotSettings, snapshotCA}},
	{Input.hasVirtualAddress, kubeconfigPaths("address")},
	{Input.hasKubelet, append(keyPairPaths("kubelet"), nodeCredential, kubeletConfig, providersFile)},
	{Input.isNode, kubeconfigPaths("proxy")},
	{Input.hasDashboard, keyPairPaths("dashboard")},
	{Input.hasDNS, kubeconfigPaths("dns")},
	{Input.hasIngress, kubeconfigPaths("ingress")},
	{Input.hasReceiver, keyPairPaths(receiver)},
	{Input.hasGitOps, append(kubeconfigPaths("gitops"), binPath(bundle.GitOps), gitOpsCacheLink, gitOpsCache)},
}

func keyPairPaths(names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, PKI+"/"+name+".crt", PKI+"/"+name+".key")
	}
	return paths
}

func kubeconfigPaths(names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, Kubernetes+"/"+name+".conf")
	}
	return paths
}

// former returns the steps that remove the files that a machine should not have. They run after the daemons that read
// them have stopped.
func former(in Input) (steps []step.Step) {
	if !in.hasKubelet() {
		steps = append(steps, &step.PruneDirs{Dir: registryDir, File: hostsFile, Written: fileHeader},
			&step.Absent{Path: registryCredentials, Written: credentialsHeader, NoCopy: true})
	}
	for _, h := range restrictedFileLists {
		if h.mayHave(in) {
			continue
		}
		for _, path := range h.paths {
			steps = append(steps, &step.Absent{Path: path, NoCopy: true})
		}
	}
	return steps
}

func (in Input) hasKubelet() bool { return in.isNode() || in.hasStaticPods() }
