package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet"
)

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

// hollowNodes are the pretended nodes, which serve nothing: they are asked in this process. Once it is made it is not
// changed.
type hollowNodes map[string]kubelet.Options

// Read implements metrics.Source.
func (h hollowNodes) Read(ctx context.Context, node *corev1.Node) (io.ReadCloser, error) {
	options, known := h[node.Name]
	if !known {
		return nil, fmt.Errorf("node %s is none of those that are pretended", node.Name)
	}
	var text bytes.Buffer
	if err := options.WriteResource(ctx, &text); err != nil {
		return nil, err
	}
	return io.NopCloser(&text), nil
}

// Forget implements metrics.Source.
func (hollowNodes) Forget(string) {}
