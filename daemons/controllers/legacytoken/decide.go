package legacytoken

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// action is what to do with a Secret.
type action int

const (
	actionKeep action = iota
	actionInvalidate
	actionRemove
)

// decide returns the action for a Secret that its account lists and that no pod mounts. The use of its token must have
// been recorded for at least period. If the date of its last use is invalid, the Secret is retained. If the date of its
// invalidation is invalid, it is marked again.
func decide(s *corev1.Secret, period time.Duration, now time.Time) action {
	before := now.Add(-period)
	if s.DeletionTimestamp != nil || !s.CreationTimestamp.Time.Before(before) {
		return actionKeep
	}
	day := before.Format(time.DateOnly) // these dates can be compared as strings
	if used, ok := s.Labels[lastUsed]; ok {
		if _, err := time.Parse(time.DateOnly, used); err != nil || used >= day {
			return actionKeep
		}
	}
	since := s.Labels[invalidSince]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return actionInvalidate
	}
	if since >= day {
		return actionKeep
	}
	return actionRemove
}

// hasTrackedFor reports whether use has been recorded for a whole period, counted from the day after since.
func hasTrackedFor(since string, period time.Duration, now time.Time) bool {
	day, err := time.Parse(time.DateOnly, since)
	return err == nil && !now.Before(day.AddDate(0, 0, 1).Add(period))
}

// mountedSecrets returns the Secrets that a pod has as volumes.
func mountedSecrets(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			out = append(out, v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					out = append(out, source.Secret.Name)
				}
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, from := range c.EnvFrom {
				if from.SecretRef != nil {
					out = append(out, from.SecretRef.Name)
				}
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					out = append(out, e.ValueFrom.SecretKeyRef.Name)
				}
			}
		}
	}
	return out
}
