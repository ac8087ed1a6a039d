package legacytoken

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const year = 365 * 24 * time.Hour

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// Proves S12.
func TestUnusedTokensAreInvalidatedAndThenDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		created, used, invalid string
		want                   action
	}{
		"young":                     {"2026-01-01", "", "", actionKeep},
		"old and never used":        {"2024-01-01", "", "", actionInvalidate},
		"used lately":               {"2024-01-01", "2025-07-02", "", actionKeep},
		"used on the day itself":    {"2024-01-01", "2025-07-01", "", actionKeep},
		"used long ago":             {"2024-01-01", "2025-06-30", "", actionInvalidate},
		"used nobody knows when":    {"2024-01-01", "lately", "", actionKeep},
		"invalid for a while":       {"2024-01-01", "", "2026-01-01", actionKeep},
		"invalid for long":          {"2022-01-01", "", "2025-06-30", actionRemove},
		"invalid for long and used": {"2022-01-01", "2026-06-30", "2025-06-30", actionKeep},
		"invalid from some day":     {"2022-01-01", "", "yesterday", actionInvalidate},
	} {
		created, err := time.Parse(time.DateOnly, c.created)
		if err != nil {
			t.Fatal(err)
		}
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{}},
		}
		for key, value := range map[string]string{lastUsed: c.used, invalidSince: c.invalid} {
			if value != "" {
				s.Labels[key] = value
			}
		}
		if got := decide(s, year, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Proves S12.
func TestTokensAreUnusedOnlyAfterAWholeRecordedPeriod(t *testing.T) {
	for since, want := range map[string]bool{"": false, "long ago": false, "2026-06-30": false, "2025-07-01": false,
		"2025-06-30": true, "2020-01-01": true} {
		if got := hasTrackedFor(since, year, now); got != want {
			t.Errorf("since %q: %v", since, got)
		}
	}
}

// Proves S12.
func TestMountedSecrets(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "b"}}}}}}},
	}, Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
		Env: []corev1.EnvVar{
			{
				ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "d"},
					},
				},
			},
		}}}}}
	if got := mountedSecrets(pod); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("it mounts %v", got)
	}
}
