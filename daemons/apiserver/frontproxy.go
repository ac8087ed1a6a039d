package apiserver

import (
	"crypto/tls"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/upkeep"
	"clusterctl/daemons/config"
)

// frontProxyCertificate returns the client certificate that the server presents to aggregated servers, and the objects
// by which those servers know the certificates to trust. Both are nil if no certificates are configured.
func frontProxyCertificate(
	cfg config.APIServer,
) (show func(*tls.CertificateRequestInfo) (*tls.Certificate, error), trusted []runtime.Object, err error) {
	if cfg.ProxyClientCertFile != "" {
		pair, err := newCertificateFile(cfg.ProxyClientCertFile, cfg.ProxyClientKeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the client certificate towards aggregated servers: %w", err)
		}
		show = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	trusted, err = upkeep.TrustConfigMaps(cfg)
	return show, trusted, err
}
