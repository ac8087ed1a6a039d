package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/controllers/loop"
)

// indexVariable is the variable that gives containers their completion index. Containers that set the variable
// themselves keep their own value.
const indexVariable = "JOB_COMPLETION_INDEX"

// maxBaseLength is the maximum length in bytes of a pod name before its random suffix: the name must be a valid host
// name.
const maxBaseLength = 63 - 5

// newPod returns a pod for the job. i is its completion index, or -1 if the job is not indexed. failed is the pod that
// it replaces, or nil.
func newPod(job *batchv1.Job, i int, failed *corev1.Pod) *corev1.Pod {
	pod := loop.PodFromTemplate(&job.Spec.Template, job, kind)
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if i < 0 {
		return pod
	}
	text := strconv.Itoa(i)
	for _, m := range []*map[string]string{&pod.Labels, &pod.Annotations} {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[batchv1.JobCompletionIndexAnnotation] = text
	}
	if hasBackoffLimitPerIndex(job) {
		maps.Copy(pod.Annotations, failureAnnotations(job, failed))
	}
	suffix := "-" + text + "-"
	pod.GenerateName = job.Name[:min(len(job.Name), maxBaseLength-len(suffix))] + suffix
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, i)
	env := corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']",
		}}}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for c := range containers {
			own := slices.ContainsFunc(containers[c].Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable })
			if !own {
				containers[c].Env = append(containers[c].Env, env)
			}
		}
	}
	return pod
}
