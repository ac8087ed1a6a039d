package dev

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Secret for a service account's token gets a valid token, and is deleted with the account.
// Proves S12.
func TestASecretForAServiceAccountGetsItsToken(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	must[*corev1.ServiceAccount](t)(
		sharedClient.CoreV1().
			ServiceAccounts(ns).
			Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}},
				metav1.CreateOptions{}),
	)
	must[*corev1.Secret](t)(
		sharedClient.CoreV1().
			Secrets(ns).
			Create(t.Context(),
				&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
					Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}},
				metav1.CreateOptions{}),
	)
	var filled *corev1.Secret
	waitFor(t, "the token", func(ctx context.Context) (bool, any) {
		filled = must[*corev1.Secret](t)(sharedClient.CoreV1().Secrets(ns).Get(ctx, "robot", metav1.GetOptions{}))
		return len(filled.Data["token"]) > 0 && len(filled.Data["ca.crt"]) > 0 &&
			string(filled.Data["namespace"]) == ns, filled.Annotations
	})
	review := func(ctx context.Context) authenticationv1.TokenReviewStatus {
		return must[*authenticationv1.TokenReview](t)(
			sharedClient.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{
					Token: string(filled.Data["token"]),
				}}, metav1.CreateOptions{}),
		).Status
	}
	waitFor(t, "the token to be known", func(ctx context.Context) (bool, any) {
		status := review(ctx)
		return status.Authenticated && status.User.Username == "system:serviceaccount:"+ns+":robot", status
	})
	waitFor(t, "its secret to say that it was used", func(ctx context.Context) (bool, any) {
		labels := must[*corev1.Secret](t)(sharedClient.CoreV1().Secrets(ns).Get(ctx, "robot",
			metav1.GetOptions{})).Labels
		_, err := time.Parse(time.DateOnly, labels["kubernetes.io/legacy-token-last-used"])
		return err == nil, labels
	})
	if err := sharedClient.CoreV1().ServiceAccounts(ns).Delete(t.Context(), "robot",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the secret to go with its account", func(ctx context.Context) (bool, any) {
		_, err := sharedClient.CoreV1().Secrets(ns).Get(ctx, "robot", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	waitFor(t, "the token to be worthless", func(ctx context.Context) (bool, any) {
		status := review(ctx)
		return !status.Authenticated, status
	})
}
