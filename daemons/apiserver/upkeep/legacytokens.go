package upkeep

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// tokenTracking is the ConfigMap that stores the day since which uses of service accounts' token Secrets are recorded.
// A token without a recorded use may have been used before that day.
const (
	tokenTracking = "kube-apiserver-legacy-service-account-token-tracking"
	trackedSince  = "since"
)

// TokenTrackingConfigMaps returns that ConfigMap, with today as the day.
func TokenTrackingConfigMaps(now time.Time) []runtime.Object {
	return []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenTracking},
		Data:       map[string]string{trackedSince: now.UTC().Format(time.DateOnly)},
	}}
}

// hasValidDay reports whether current is that ConfigMap, with a day that is not in the future. Such a day must not be
// overwritten.
func hasValidDay(current, want *corev1.ConfigMap) bool {
	if want.Namespace != metav1.NamespaceSystem || want.Name != tokenTracking {
		return false
	}
	day, err := time.Parse(time.DateOnly, current.Data[trackedSince])
	today, err2 := time.Parse(time.DateOnly, want.Data[trackedSince])
	return err == nil && err2 == nil && !day.After(today)
}
