package role

import (
	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// ingress serves clients of the cluster's HTTP services on ports of the machine. The service manager keeps its sockets over a restart. It
// runs as a user of its own, made for the unit: what strangers send is read with no rights but to have low ports, and the key to the API
// is handed to it by the service manager.
func ingress(b *builder) {
	def := config.DefaultIngress()
	cfg := def
	b.Cluster.Ingress.Settings.Over(&cfg)
	kubeconfig := b.kubeconfig("ingress", certs.Daemon("kube-ingress"))
	cfg.Kubeconfig, cfg.APIServers = "/run/credentials/kube-ingress.service/kubeconfig", b.apiServers()
	cfg.ServiceName, cfg.NodeName, cfg.NodeIP = "kube-system/kube-ingress", b.Machine.Name, b.Machine.IP.String()
	b.unit(service{
		name: "kube-ingress", description: "Kubernetes ingress proxy", watchdog: true, beside: true, health: ready(cfg.HealthAddress),
		exec: append([]string{b.daemon("kube-ingress")}, config.Args(&cfg, &def)...), reads: []string{kubeconfig},
		options: append([]string{
			"DynamicUser=yes", "LoadCredential=kubeconfig:" + kubeconfig, "CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "FileDescriptorStoreMax=520",
		}, confined...),
	})
}
