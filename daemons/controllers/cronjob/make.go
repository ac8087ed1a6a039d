package cronjob

import (
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// jobName returns the name of the job of a scheduled time. It depends on that time alone, so that two attempts create
// one job.
func jobName(cj *batchv1.CronJob, scheduled time.Time) string {
	return fmt.Sprintf("%s-%d", cj.Name, scheduled.Unix()/60)
}

// newJob returns the job for a scheduled time.
func newJob(cj *batchv1.CronJob, scheduled time.Time) *batchv1.Job {
	template := cj.Spec.JobTemplate.DeepCopy()
	annotations := map[string]string{}
	maps.Copy(annotations, template.Annotations)
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = formatScheduled(cj, scheduled)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: jobName(cj, scheduled), Namespace: cj.Namespace, Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)},
		},
		Spec: template.Spec,
	}
}

// formatScheduled formats a scheduled time for its job: in the CronJob's time zone, or in UTC if it has none. The
// machine's time zone does not matter.
func formatScheduled(cj *batchv1.CronJob, scheduled time.Time) string {
	zone, err := time.LoadLocation(ptr.Deref(cj.Spec.TimeZone, "UTC"))
	if err != nil {
		zone = time.UTC
	}
	return scheduled.In(zone).Format(time.RFC3339)
}

// scheduledFor returns the time that a job was created for. It reports false for jobs that were created by hand from a
// CronJob.
func scheduledFor(cj *batchv1.CronJob, job *batchv1.Job, now time.Time) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return t, err == nil && job.Name == jobName(cj, t) && !t.After(now)
}

func reference(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion:      batchv1.SchemeGroupVersion.String(),
		Kind:            "Job",
		Namespace:       job.Namespace,
		Name:            job.Name,
		UID:             job.UID,
		ResourceVersion: job.ResourceVersion,
	}
}
