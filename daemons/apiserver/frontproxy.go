package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
	trusted, err = trustConfigMaps(cfg)
	return show, trusted, err
}

// trustConfigMaps returns the ConfigMap by which aggregated servers know the certificates to trust. It reads the files,
// which may be replaced while the server runs.
func trustConfigMaps(cfg config.APIServer) ([]runtime.Object, error) {
	data := map[string]string{}
	for key, file := range map[string]string{"client-ca-file": cfg.ClientCAFile,
		"requestheader-client-ca-file": cfg.RequestheaderClientCAFile} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read what aggregated servers shall trust: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read what aggregated servers shall trust: no certificate in %s", file)
		}
		data[key] = string(text)
	}
	if cfg.RequestheaderClientCAFile != "" {
		for key, list := range map[string][]string{
			"requestheader-allowed-names":    cfg.RequestheaderAllowedNames,
			"requestheader-username-headers": {"X-Remote-User"}, "requestheader-uid-headers": {"X-Remote-Uid"},
			"requestheader-group-headers":        {"X-Remote-Group"},
			"requestheader-extra-headers-prefix": {"X-Remote-Extra-"},
		} {
			text, err := json.Marshal(list)
			if err != nil {
				return nil, fmt.Errorf("encode what aggregated servers shall trust: %w", err)
			}
			data[key] = string(text)
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	return []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      "extension-apiserver-authentication",
		}, Data: data,
	}}, nil
}

// syncTrustConfigMaps writes that ConfigMap again when the files have changed, until ctx ends. If a file is unreadable
// or has no certificate, the ConfigMap does not change, because the file may be half replaced.
func (s *Server) syncTrustConfigMaps(ctx context.Context, cfg config.APIServer, was []runtime.Object) error {
	tick := time.NewTicker(certificateFileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := trustConfigMaps(cfg)
		switch {
		case err != nil:
			s.log.Error("read what aggregated servers shall trust; it stays as it was", "err", err)
			continue
		case equality.Semantic.DeepEqual(now, was) || !s.isBootstrapped():
			continue
		}
		if _, err := s.writes.EnsureEach(ctx, now); err != nil {
			s.log.Warn("write what aggregated servers shall trust", "err", err)
			continue // retried at the next tick
		}
		was = now
	}
}
