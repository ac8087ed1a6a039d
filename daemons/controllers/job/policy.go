package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// policyAction returns the action of the first podFailurePolicy rule that matches a failed pod, and the reason. Without
// a matching rule the failure counts.
func policyAction(job *batchv1.Job, pod *corev1.Pod) (batchv1.PodFailurePolicyAction, string) {
	policy := job.Spec.PodFailurePolicy
	if policy == nil || pod.Status.Phase != corev1.PodFailed {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range policy.Rules {
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && job.Spec.BackoffLimitPerIndex == nil {
			continue
		}
		if rule.OnExitCodes != nil {
			if name, code, ok := matchingExit(pod, rule.OnExitCodes); ok {
				return rule.Action, fmt.Sprintf(
					"Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d", name,
					pod.Namespace, pod.Name, code, rule.Action, i)
			}
		}
		for _, wanted := range rule.OnPodConditions {
			if slices.ContainsFunc(pod.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Type == wanted.Type && c.Status == wanted.Status }) {
				return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d",
					pod.Namespace, pod.Name, wanted.Type, rule.Action, i)
			}
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

// matchingExit returns the first container that failed with an exit code that the rule matches.
func matchingExit(pod *corev1.Pod, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) (name string, code int32,
	ok bool) {
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		end := c.State.Terminated
		if end == nil || end.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			continue
		}
		if slices.Contains(rule.Values, end.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return c.Name, end.ExitCode, true
		}
	}
	return "", 0, false
}

// successReason returns a message about the first rule of the job's successPolicy that the completed indexes satisfy.
func successReason(job *batchv1.Job, done intervals) (string, bool) {
	if job.Spec.SuccessPolicy == nil || !isIndexed(job) {
		return "", false
	}
	for i, rule := range job.Spec.SuccessPolicy.Rules {
		current, want := done.count(), int(*job.Spec.Completions)
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, want)
			current, want = done.overlap(wanted), wanted.count()
		}
		if rule.SucceededCount != nil {
			want = int(*rule.SucceededCount)
		}
		if current >= want {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}

// replacesOnlyEnded reports whether pods are replaced only after they have ended. A pod that is being deleted then
// still occupies its place.
func replacesOnlyEnded(job *batchv1.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed
}
