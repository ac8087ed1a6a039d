package job

import (
	"fmt"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/controllers/loop"
)

// newPod returns a pod for an index of the job, -1 for none; it may stand in for one that failed.
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
	if perIndex(job) {
		maps.Copy(pod.Annotations, retries(job, failed))
	}
	pod.GenerateName = fmt.Sprintf("%s-%d-", job.Name, i)
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, i)
	env := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"}}}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for c := range containers {
			containers[c].Env = append(containers[c].Env, env)
		}
	}
	return pod
}
