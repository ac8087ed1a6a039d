package main

import "clusterctl/daemons/config"

// metricsServer configures the server of metrics.k8s.io, which listens on loopback: the API server finds it by another
// name of that, since endpoints may not be there.
func (d *dev) metricsServer() config.MetricsServer {
	cfg := config.DefaultMetricsServer()
	cfg.Kubeconfig, cfg.BindAddress, cfg.SecurePort = d.files.path("metrics-server.conf"), "127.0.0.1", 0
	cfg.MetricResolution = d.resolution
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = d.files.path("metrics-server.crt"), d.files.path("metrics-server.key")
	cfg.ClientCAFile = d.files.path("ca.crt")
	api := d.apiServer("")
	cfg.RequestheaderClientCAFile = api.RequestheaderClientCAFile
	cfg.RequestheaderAllowedNames = api.RequestheaderAllowedNames
	return cfg
}
