package role

import (
	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// ingress serves clients of the cluster's HTTP services on ports of the machine. The service manager keeps its sockets over a restart,
// those of Gateways among them.
func ingress(b *builder) {
	def := config.DefaultIngress()
	cfg := def
	b.Cluster.Ingress.Settings.Over(&cfg)
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("ingress", certs.Daemon("kube-ingress")), b.apiServers()
	cfg.ServiceName, cfg.NodeName, cfg.NodeIP = "kube-system/kube-ingress", b.Machine.Name, b.Machine.IPs()
	b.unit(service{
		name: "kube-ingress", description: "Kubernetes ingress proxy", watchdog: true, beside: true, health: ready(cfg.HealthAddress),
		exec: append([]string{b.daemon("kube-ingress")}, config.Args(&cfg, &def)...), reads: []string{cfg.Kubeconfig},
		options: append([]string{"CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "FileDescriptorStoreMax=520"}, confined...),
	})
}
