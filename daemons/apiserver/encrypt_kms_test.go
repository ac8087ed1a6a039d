package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
	"clusterctl/tests/programs/kmsplugin/kmstest"
)

// startPlugin returns a KMS plugin, and a change that makes an API server use it.
func startPlugin(t *testing.T, timeout string) (plugin *kmstest.Plugin, change func(*config.APIServer)) {
	dir, plugin := t.TempDir(), kmstest.New(t)
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers:\n" +
		fmt.Sprintf("  - kms: {apiVersion: v2, name: vault, endpoint: %q, timeout: %s}\n", plugin.Endpoint(), timeout)
	writeFile(t, dir, "encryption.yaml", []byte(text))
	return plugin, func(cfg *config.APIServer) { cfg.EncryptionProviderConfig = filepath.Join(dir, "encryption.yaml") }
}

// checkUnreadableError returns nil if a client's error states that a Secret cannot be decrypted, and names the plugin.
func checkUnreadableError(what string, err error) error {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInternalServerError {
		return fmt.Errorf("%s: %w", what, err)
	}
	reason := err.Error()
	if d := status.Status().Details; d != nil && status.Status().Reason == metav1.StatusReasonStoreReadError &&
		len(d.Causes) > 0 {
		reason = d.Causes[0].Message
	}
	if !strings.Contains(reason, `KMS plugin "vault" at unix://`) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// An API server whose KMS plugin is unavailable still reads values whose seed it has cached. Reading another object
// fails with the reason, and so does a list that would include it, until the plugin answers.
// Proves S10, S12.
func TestUndecryptableObjectsAreErrors(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	ctx := context.Background()
	at := func(how func(*config.APIServer)) (*testCluster, *kubernetes.Clientset) {
		c := serveCluster(t, s, how)
		return c, kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	}
	sound, how := startPlugin(t, "20s")
	sound.Start(t)
	_, first := at(how)
	frail, how := startPlugin(t, "1s")
	stop := frail.Start(t)
	c, second := at(how)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"word": "old"}}
	if _, err := second.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop()
	waitUntil(t, func() error {
		got, err := second.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
		if err == nil && string(got.Data["word"]) != "old" {
			err = fmt.Errorf("read as %v", got.Data)
		}
		return err
	})
	secret.StringData["word"] = "new"
	if _, err := first.CoreV1().Secrets("default").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	checkUnreadableRequests(ctx, t, second, secret)
	if list, err := second.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{}); err != nil ||
		len(list.Items) != 0 {
		t.Errorf("another namespace: %v, %v", list, err)
	}
	if _, err := second.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("what is not encrypted: %v", err)
	}

	frail.Start(t)
	waitUntil(t, func() error {
		got, err := second.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
		if err == nil && string(got.Data["word"]) != "new" {
			t.Errorf("read as %s", got.Data["word"])
		}
		return err
	})
	if list, err := second.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("listed as %v, %v", list, err)
	}
	waitUntil(t, func() error { return c.checkHealth("/healthz/kms-providers") })
}

// checkUnreadableRequests checks that each kind of request that reads the Secret fails with the reason.
func checkUnreadableRequests(ctx context.Context, t *testing.T, client *kubernetes.Clientset, secret *corev1.Secret) {
	asks := func(what string, f func() error) {
		t.Helper()
		if err := checkUnreadableError(what, f()); err != nil {
			t.Error(err)
		}
	}
	for _, version := range []string{"", "0"} {
		waitUntil(t, func() error { // at version 0, as soon as the cache has the change
			_, err := client.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{ResourceVersion: version})
			return checkUnreadableError("get at "+version, err)
		})
	}
	asks("list", func() error { _, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); return err })
	asks("watch", func() error {
		_, err := client.CoreV1().Secrets("default").Watch(ctx, metav1.ListOptions{})
		return err
	})
	asks("deletecollection", func() error {
		return client.CoreV1().Secrets("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	asks("update", func() error {
		_, err := client.CoreV1().Secrets("default").Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	asks("patch", func() error {
		_, err := client.CoreV1().
			Secrets("default").
			Patch(ctx, "s", "application/merge-patch+json", []byte(`{"stringData":{"word":"x"}}`), metav1.PatchOptions{})
		return err
	})
}

// Without its plugin a server starts, is not ready, and reports that Secrets cannot be decrypted.
// Proves S10.
func TestServerIsNotReadyWithoutItsKMSPlugin(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	ctx := context.Background()
	sound, how := startPlugin(t, "20s")
	sound.Start(t)
	first := kubernetes.NewForConfigOrDie(serveCluster(t, s, how).configFor(certs.Admin()))
	if _, err := first.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	late, how := startPlugin(t, "200ms")
	c := startCluster(t, s, how)
	second := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	waitUntil(t, func() error {
		_, err := second.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
		return checkUnreadableError("get", err)
	})
	if err := c.checkHealth("/readyz/kms-providers"); err == nil {
		t.Error("its plugin is said to be well")
	}
	if c.readinessError() == nil {
		t.Error("it is ready without its plugin")
	}
	_, err := second.CoreV1().
		Secrets("default").
		Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t"}}, metav1.CreateOptions{})
	if err := checkUnreadableError("create", err); err != nil {
		t.Error(err)
	}
	late.Start(t)
	waitUntil(t, c.readinessError)
	waitUntil(t, func() error {
		_, err := second.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
		return err
	})
}
