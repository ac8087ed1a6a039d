package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/config"
)

// towardsAggregated returns what the server shows of itself to servers that it passes
// requests on to, and the object by which these know whom to believe; nil without
// certificates.
func towardsAggregated(cfg config.APIServer) (show func(*tls.CertificateRequestInfo) (*tls.Certificate, error), trusted []runtime.Object, err error) {
	if cfg.ProxyClientCertFile != "" {
		pair, err := newPairFile(cfg.ProxyClientCertFile, cfg.ProxyClientKeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the client certificate towards aggregated servers: %w", err)
		}
		show = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	data := map[string]string{}
	for key, file := range map[string]string{"client-ca-file": cfg.ClientCAFile, "requestheader-client-ca-file": cfg.RequestheaderClientCAFile} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("read what aggregated servers shall trust: %w", err)
		}
		data[key] = string(text)
	}
	if cfg.RequestheaderClientCAFile != "" {
		for key, list := range map[string][]string{
			"requestheader-allowed-names": cfg.RequestheaderAllowedNames, "requestheader-username-headers": {"X-Remote-User"}, "requestheader-uid-headers": {"X-Remote-Uid"},
			"requestheader-group-headers": {"X-Remote-Group"}, "requestheader-extra-headers-prefix": {"X-Remote-Extra-"},
		} {
			text, err := json.Marshal(list)
			if err != nil {
				return nil, nil, fmt.Errorf("encode what aggregated servers shall trust: %w", err)
			}
			data[key] = string(text)
		}
	}
	if len(data) == 0 {
		return show, nil, nil
	}
	return show, []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"}, Data: data,
	}}, nil
}
