package dev

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestCronJobsStartTheJobOfTheLastMissedTime sets the status to an hour ago, because tests do not wait for minutes.
// Proves S20.
func TestCronJobsStartTheJobOfTheLastMissedTime(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	spec := podSpec("exit", "0")
	spec.RestartPolicy = corev1.RestartPolicyNever
	cronJobs := sharedClient.BatchV1().CronJobs(ns)
	must[*batchv1.CronJob](t)(cronJobs.Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: batchv1.CronJobSpec{
			Schedule:          "*/1 * * * *",
			TimeZone:          ptr.To("Asia/Tokyo"),
			Suspend:           ptr.To(true),
			ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "c"}},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}},
		},
	}, metav1.CreateOptions{}))
	hourAgo := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	must[*batchv1.CronJob](t)(cronJobs.Patch(t.Context(), "c", types.MergePatchType, fmt.Appendf(nil,
		`{"status":{"lastScheduleTime":%q}}`, hourAgo), metav1.PatchOptions{}, "status"))
	must[*batchv1.CronJob](t)(cronJobs.Patch(t.Context(), "c", types.MergePatchType,
		[]byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}))
	var cj *batchv1.CronJob
	waitFor(t, "a success", func(ctx context.Context) (bool, any) {
		var err error
		if cj, err = cronJobs.Get(ctx, "c", metav1.GetOptions{}); err != nil {
			return false, err
		}
		return cj.Status.LastSuccessfulTime != nil, cj.Status
	})
	jobs := must[*batchv1.JobList](t)(sharedClient.BatchV1().Jobs(ns).List(t.Context(),
		metav1.ListOptions{LabelSelector: "of=c"})).Items
	for _, job := range jobs {
		scheduled, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil || !strings.HasSuffix(job.Annotations[batchv1.CronJobScheduledTimestampAnnotation], "+09:00") {
			t.Errorf("annotations %v", job.Annotations)
		}
		if want := fmt.Sprintf("c-%d", scheduled.Unix()/60); job.Name != want || !metav1.IsControlledBy(&job, cj) {
			t.Errorf("job %s owned by %v, want the name %s", job.Name, job.OwnerReferences, want)
		}
	}
	if len(jobs) == 0 || len(jobs) > 2 { // one, or two if a minute ends at this time
		t.Errorf("%d jobs: %v", len(jobs), jobs)
	}
	waitFor(t, "the events", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=CronJob"})
		if err != nil {
			return false, err
		}
		has := func(reason, message string) bool {
			return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
				return e.Reason == reason && e.Message == message && e.Source.Component == "cronjob-controller"
			})
		}
		return has("SuccessfulCreate", "Created job "+jobs[0].Name) &&
			has("SawCompletedJob", "Saw completed job: "+jobs[0].Name+", condition: Complete"), list.Items
	})
	if err := cronJobs.Delete(t.Context(), "c",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "no jobs without the CronJob", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, list
	})
}
