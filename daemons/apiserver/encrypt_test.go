package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
)

// checkHealth requests a health check without credentials.
func (c *testCluster) checkHealth(path string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get("https://" + c.addr + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, r.Status)
	}
	return nil
}

func encryptionConfiguration(keys ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers:\n  - secretbox:\n      keys:\n"
	for _, k := range keys {
		text += "      - {name: " + k + ", secret: " + base64.StdEncoding.EncodeToString(
			[]byte(strings.Repeat(k, 32)),
		) + "}\n"
	}
	return text + "  - identity: {}\n"
}

// Secrets are stored encrypted, and a new key replaces the old one while the server runs.
func TestSecretsAreEncryptedAndKeysRotate(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	path := filepath.Join(dir, "encryption.yaml")
	writeFile(t, dir, "encryption.yaml", []byte(encryptionConfiguration("a")))
	c := serveCluster(t, s, func(cfg *config.APIServer) { cfg.EncryptionProviderConfig = path })
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	ctx := context.Background()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		StringData: map[string]string{"password": "correct horse"},
	}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	written := func(prefix string) {
		t.Helper()
		kv, err := s.Get(ctx, "/registry/secrets/default/s")
		if err != nil || kv == nil || !strings.HasPrefix(string(kv.Value), prefix) {
			t.Fatalf("stored as %+v, %v, want %s", kv, err, prefix)
		}
		got, err := client.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
		if err != nil || string(got.Data["password"]) != "correct horse" {
			t.Fatalf("read as %v, %v", got, err)
		}
	}
	written("k8s:enc:secretbox:v1:a:")
	if kv, err := s.Get(ctx, "/registry/namespaces/default"); err != nil || kv.Value[0] != '{' {
		t.Errorf("a namespace is stored as %+v, %v", kv, err)
	}
	for _, step := range [][]string{{"a", "b"}, {"b", "a"}, {"b"}} {
		if err := os.WriteFile(path, []byte(encryptionConfiguration(step...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.checkHealth("/readyz/encryption-config"); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, func() error { return c.checkHealth("/readyz/encryption-rewritten") })
		written("k8s:enc:secretbox:v1:" + step[0] + ":")
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.checkHealth("/readyz/encryption-config") == nil {
		t.Error("a file without sense is said to be in use")
	}
	if err := c.checkHealth("/readyz"); err != nil {
		t.Errorf("the server is not ready with its former keys: %v", err)
	}
	written("k8s:enc:secretbox:v1:b:")
}
