package dev

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// createCronJob creates a suspended cron job that was last due some minutes ago, so that it is due when it resumes.
func createCronJob(t *testing.T, ns string, change func(*batchv1.CronJobSpec), command ...string) {
	t.Helper()
	spec := podSpec(command...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: batchv1.CronJobSpec{Schedule: "* * * * *", Suspend: ptr.To(true),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}},
	}
	if change != nil {
		change(&c.Spec)
	}
	must[*batchv1.CronJob](t)(sharedClient.BatchV1().CronJobs(ns).Create(t.Context(), c, metav1.CreateOptions{}))
}

// makeOverdue sets the last schedule time to five minutes ago, and resumes the cron job.
func makeOverdue(t *testing.T, ns string) {
	t.Helper()
	last := fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, time.Now().UTC().Add(-5*time.Minute).Format(time.RFC3339))
	crons := sharedClient.BatchV1().CronJobs(ns)
	if _, err := crons.Patch(t.Context(), "c", types.MergePatchType, []byte(last), metav1.PatchOptions{},
		"status"); err != nil {
		t.Fatal(err)
	}
	if _, err := crons.Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func getCronJob(ctx context.Context, t *testing.T, ns string) (c *batchv1.CronJob, jobs []batchv1.Job) {
	t.Helper()
	c = must[*batchv1.CronJob](t)(sharedClient.BatchV1().CronJobs(ns).Get(ctx, "c", metav1.GetOptions{}))
	return c, must[*batchv1.JobList](t)(sharedClient.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})).Items
}

func hasEvent(ctx context.Context, t *testing.T, ns, reason string) bool {
	t.Helper()
	events := must[*corev1.EventList](t)(
		sharedClient.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=CronJob,reason=" + reason}),
	).Items
	return slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Source.Component == "cronjob-controller" })
}

// Proves S20.
func TestCronJobsCreateJobsAndKeepTheLimit(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createCronJob(t, ns, func(s *batchv1.CronJobSpec) { s.SuccessfulJobsHistoryLimit = ptr.To(int32(0)) }, "true")
	holdFor(t, "nothing while it is suspended", func(ctx context.Context) (bool, any) {
		_, jobs := getCronJob(ctx, t, ns)
		return len(jobs) == 0, len(jobs)
	})
	makeOverdue(t, ns)
	waitFor(t, "a job that has succeeded, and went", func(ctx context.Context) (bool, any) {
		c, jobs := getCronJob(ctx, t, ns)
		return c.Status.LastSuccessfulTime != nil && c.Status.LastScheduleTime != nil && len(c.Status.Active) == 0 &&
			len(jobs) == 0, fmt.Sprintf("%+v %d", c.Status, len(jobs))
	})
	for _, reason := range []string{"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} {
		waitFor(t, "event "+reason, func(ctx context.Context) (bool, any) { return hasEvent(ctx, t, ns, reason), nil })
	}
	c, _ := getCronJob(t.Context(), t, ns)
	if s := c.Status.LastScheduleTime.Second(); s != 0 || time.Since(c.Status.LastScheduleTime.Time) > 2*time.Minute {
		t.Errorf("it was last due at %v", c.Status.LastScheduleTime)
	}
}

// Proves S20.
func TestCronJobsFollowTheirConcurrencyPolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ns := createNamespace(t)
			// The first job belongs to a time before the last minute, so that another time is due as soon as the
			// schedule is every minute.
			earlier := time.Now().UTC().Add(-3 * time.Minute)
			createCronJob(t, ns, func(s *batchv1.CronJobSpec) {
				s.ConcurrencyPolicy, s.TimeZone, s.Schedule = policy, ptr.To("Etc/UTC"), earlier.Format("4 15 * * *")
			})
			makeOverdue(t, ns)
			var first batchv1.Job
			waitFor(t, "a job that runs", func(ctx context.Context) (bool, any) {
				c, jobs := getCronJob(ctx, t, ns)
				if len(jobs) != 1 || len(c.Status.Active) != 1 {
					return false, c.Status
				}
				first = jobs[0]
				return c.Status.Active[0].UID == first.UID && metav1.IsControlledBy(&first, c) &&
					first.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != "", c.Status
			})
			must[*batchv1.CronJob](t)(
				sharedClient.BatchV1().
					CronJobs(ns).
					Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec":{"schedule":"* * * * *"}}`), metav1.PatchOptions{}),
			)
			if policy == batchv1.ForbidConcurrent {
				waitFor(t, "that it does not begin another", func(ctx context.Context) (bool, any) {
					c, jobs := getCronJob(ctx, t, ns)
					return hasEvent(ctx, t, ns, "JobAlreadyActive") && len(jobs) == 1 &&
						jobs[0].UID == first.UID, c.Status
				})
				return
			}
			waitFor(t, "another in its place", func(ctx context.Context) (bool, any) {
				c, jobs := getCronJob(ctx, t, ns)
				return len(jobs) == 1 && jobs[0].UID != first.UID && len(c.Status.Active) == 1 &&
					c.Status.Active[0].UID == jobs[0].UID, c.Status
			})
		})
	}
}

// A job that another client deletes is no longer active, and the jobs of a cron job are deleted with it.
// Proves S20.
func TestJobsAreDeletedWithTheirCronJob(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createCronJob(t, ns, nil)
	makeOverdue(t, ns)
	var job batchv1.Job
	waitFor(t, "a job", func(ctx context.Context) (bool, any) {
		c, jobs := getCronJob(ctx, t, ns)
		if len(jobs) == 1 && len(c.Status.Active) == 1 {
			job = jobs[0]
			return true, nil
		}
		return false, c.Status
	})
	if _, err := sharedClient.BatchV1().CronJobs(ns).Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	if err := sharedClient.BatchV1().Jobs(ns).Delete(t.Context(), job.Name,
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "none to be active", func(ctx context.Context) (bool, any) {
		c, _ := getCronJob(ctx, t, ns)
		return len(c.Status.Active) == 0, c.Status
	})
	makeOverdue(t, ns)
	waitFor(t, "another job", func(ctx context.Context) (bool, any) {
		_, jobs := getCronJob(ctx, t, ns)
		return len(jobs) == 1 && jobs[0].UID != job.UID, len(jobs)
	})
	if err := sharedClient.BatchV1().CronJobs(ns).Delete(t.Context(), "c",
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its jobs to go", func(ctx context.Context) (bool, any) {
		jobs := must[*batchv1.JobList](t)(sharedClient.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})).Items
		return len(jobs) == 0 && len(podsOf(t, ns, "")) == 0, len(jobs)
	})
}
