package main

import "clusterctl/daemons/config"

// metricsServer configures the metrics server, which listens on loopback. The API server reaches it by another name of
// the loopback address, because endpoints may not be loopback addresses.
func (d *devCluster) metricsServer() config.MetricsServer {
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
