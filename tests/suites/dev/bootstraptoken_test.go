package dev

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A token signs the ConfigMap that machines read before they trust the cluster. After its expiration it is deleted.
// Proves S12.
func TestBootstrapTokensSignUntilTheyExpire(t *testing.T) {
	t.Parallel()
	const id, key = "dev123", "jws-kubeconfig-dev123"
	secrets, public := sharedClient.CoreV1().
		Secrets(metav1.NamespaceSystem),
		sharedClient.CoreV1().
			ConfigMaps(metav1.NamespacePublic)
	must[*corev1.ConfigMap](t)(
		public.Create(
			t.Context(),
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
				Data:       map[string]string{"kubeconfig": "apiVersion: v1"},
			},
			metav1.CreateOptions{},
		),
	)
	t.Cleanup(func() {
		_ = public.Delete(context.WithoutCancel(t.Context()), "cluster-info", metav1.DeleteOptions{})
	})
	token := must[*corev1.Secret](t)(
		secrets.Create(
			t.Context(),
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
				Type:       corev1.SecretTypeBootstrapToken,
				StringData: map[string]string{
					"token-id":                id,
					"token-secret":            "0123456789abcdef",
					"usage-bootstrap-signing": "true",
				},
			},
			metav1.CreateOptions{},
		),
	)
	signed := func(want bool) {
		t.Helper()
		waitFor(t, "cluster-info to have its signature, or not", func(ctx context.Context) (bool, any) {
			m, err := public.Get(ctx, "cluster-info", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return (m.Data[key] != "") == want, m.Data
		})
	}
	signed(true)
	token.StringData = map[string]string{"expiration": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)}
	must[*corev1.Secret](t)(secrets.Update(t.Context(), token, metav1.UpdateOptions{}))
	waitFor(t, "the token to go", func(ctx context.Context) (bool, any) {
		return isGone(secrets.Get(ctx, token.Name, metav1.GetOptions{}))
	})
	signed(false)
}
