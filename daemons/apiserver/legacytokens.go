package apiserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// tokenTracking says since when uses of service accounts' tokens in Secrets are recorded: what is older and shows no
// use says nothing about being unused.
const (
	tokenTracking = "kube-apiserver-legacy-service-account-token-tracking"
	trackedSince  = "since"
)

// tokensTracked is that object, as it is when it is made today.
func tokensTracked(now time.Time) []runtime.Object {
	return []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenTracking},
		Data:       map[string]string{trackedSince: now.UTC().Format(time.DateOnly)},
	}}
}

// keepsDay says whether an object is that one with a day that is not in the future, which stays.
func keepsDay(have, want *corev1.ConfigMap) bool {
	if want.Namespace != metav1.NamespaceSystem || want.Name != tokenTracking {
		return false
	}
	day, err := time.Parse(time.DateOnly, have.Data[trackedSince])
	today, err2 := time.Parse(time.DateOnly, want.Data[trackedSince])
	return err == nil && err2 == nil && !day.After(today)
}
