package upkeep

import (
	"context"
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

// trustInterval is how often the files of trusted certificates are compared with the ConfigMap.
const trustInterval = 10 * time.Second

// TrustConfigMaps returns the ConfigMap by which aggregated servers know the certificates to trust. It reads the files,
// which may be replaced while the server runs.
func TrustConfigMaps(cfg config.APIServer) ([]runtime.Object, error) {
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

// SyncTrustConfigMaps writes that ConfigMap again when the files have changed, until ctx ends. If a file is unreadable
// or has no certificate, the ConfigMap does not change, because the file may be half replaced.
func (s *Upkeep) SyncTrustConfigMaps(ctx context.Context, cfg config.APIServer, before []runtime.Object) error {
	tick := time.NewTicker(trustInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := TrustConfigMaps(cfg)
		switch {
		case err != nil:
			s.config.Log.Error("read what aggregated servers shall trust; it stays as it was", "err", err)
			continue
		case equality.Semantic.DeepEqual(now, before) || !s.IsBootstrapped():
			continue
		}
		if _, err := s.config.Writes.EnsureEach(ctx, now); err != nil {
			s.config.Log.Warn("write what aggregated servers shall trust", "err", err)
			continue // retried at the next tick
		}
		before = now
	}
}
