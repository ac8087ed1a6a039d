package role

import (
	"clusterctl/certs"
	"clusterctl/daemons/config"
)

const dashboardUnit = "kube-dashboard"

// hasDashboard reports whether the machine runs the dashboard.
func (in Input) hasDashboard() bool { return in.isControlPlane() && in.Cluster.Dashboard != nil }

// addDashboard adds the dashboard, which serves visitors with the rights of their tokens. It runs as a dynamic user,
// and has no credentials of the API.
func addDashboard(b *builder) {
	def := config.DefaultDashboard()
	cfg := def
	hosts := append([]string{b.Machine.Name}, b.Machine.IPs()...)
	if ip := b.Cluster.VirtualAddress; ip.IsValid() {
		hosts = append(hosts, ip.String())
	}
	cert, key := b.certificate("dashboard", certs.ClusterCA,
		certs.DaemonServer(dashboardUnit, append(hosts, b.Cluster.Dashboard.Hostnames...)))
	const ca, credentials = PKI + "/ca.crt", "/run/credentials/" + dashboardUnit + ".service/"
	cfg.APIServers, cfg.ClusterName, cfg.CertificateAuthority = b.apiServers(), b.Cluster.Name, credentials+"ca"
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = credentials+"certificate", credentials+"key"
	b.addUnit(service{
		name: dashboardUnit, description: "Kubernetes dashboard", startAfter: "kube-apiserver.service",
		hasWatchdog: true, canStartInParallel: true, health: readyURL(cfg.HealthAddress),
		exec:  append([]string{b.addDaemon(dashboardUnit)}, config.Args(&cfg, &def)...),
		reads: []string{cert, key, ca},
		options: append([]string{"DynamicUser=yes", "LoadCredential=ca:" + ca, "LoadCredential=certificate:" + cert,
			"LoadCredential=key:" + key, "CapabilityBoundingSet=", "MemoryMax=1G"}, confinement...),
	})
}
