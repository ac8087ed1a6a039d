package apiserver_test

import (
	"errors"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
)

// The ConfigMap for aggregated servers changes when the file of the client CA is replaced.
// Proves S12.
func TestTrustConfigMapFollowsTheCAFiles(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	var path string
	c := serveCluster(t, s, func(cfg *config.APIServer) { path = cfg.ClientCAFile })
	next, err := certs.NewCA("next", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	both := append(append([]byte{}, before...), next.Cert...)
	if err := os.WriteFile(path, both, 0o600); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() error {
		m, err := client.CoreV1().
			ConfigMaps("kube-system").
			Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err == nil && m.Data["client-ca-file"] != string(both) {
			return errors.New("it has the former authorities alone")
		}
		return err
	})
}
