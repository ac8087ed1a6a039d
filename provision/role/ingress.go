package role

import (
	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// addIngress adds the ingress proxy, which serves HTTP clients on ports of the machine. systemd keeps its sockets,
// including those of Gateways, across a restart.
func addIngress(b *builder) {
	def := config.DefaultIngress()
	cfg := def
	b.Cluster.Ingress.Settings.Over(&cfg)
	const name = "kube-ingress"
	file := b.kubeconfig("ingress", certs.Replica(name, b.Machine.Name))
	cfg.Kubeconfig, cfg.APIServers = credentialPath(name), b.apiServers()
	cfg.ServiceName, cfg.NodeName, cfg.NodeIP = "kube-system/"+name, b.Machine.Name, b.Machine.IPs()
	b.addUnit(service{
		name: name, description: "Kubernetes ingress proxy", hasWatchdog: true, canStartInParallel: true,
		health: readyURL(cfg.HealthAddress),
		exec:   append([]string{b.addDaemon(name)}, config.Args(&cfg, &def)...), reads: []string{file},
		options: append(dynamicUserOptions(file, "CAP_NET_BIND_SERVICE"), "FileDescriptorStoreMax=520"),
	})
}
