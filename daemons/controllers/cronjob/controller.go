// Package cronjob makes a Job whenever a CronJob's schedule says so, and looks after those that it has made: which of
// them run, how many that have ended are kept. What a job's pods do is the job controller's.
package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

type controller struct {
	loop.Context
	loop.Loop
	crons batchlisters.CronJobLister
	jobs  cache.Indexer
}

// ofCronJob finds jobs by the UID of the CronJob that controls them.
const ofCronJob = "cronjob"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	crons, jobs := c.Informers.Batch().V1().CronJobs(), c.Informers.Batch().V1().Jobs()
	// An informer that was started takes no index, and this one was not.
	_ = jobs.Informer().AddIndexers(cache.Indexers{ofCronJob: func(obj any) ([]string, error) {
		if ref := metav1.GetControllerOf(obj.(*batchv1.Job)); ref != nil && ref.Kind == kind.Kind {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	}})
	r := &controller{Context: c, crons: crons.Lister(), jobs: jobs.Informer().GetIndexer()}
	r.Loop = loop.Loop{Name: "cronjob", Log: c.Log, Sync: r.sync, Synced: []cache.InformerSynced{crons.Informer().HasSynced, jobs.Informer().HasSynced}}
	loop.On(crons.Informer(), r.Add)
	loop.OnChange(jobs.Informer(), func(old, obj any) {
		for _, o := range []any{old, obj} {
			if job, ok := o.(*batchv1.Job); ok {
				if key := loop.Owner(job, kind.Kind); key != "" {
					r.Queue().Add(key)
				}
			}
		}
	})
	return r
}

func (r *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := r.crons.CronJobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	c := cached.DeepCopy()
	jobs, err := r.of(c)
	if err != nil {
		return err
	}
	lost, err := r.lost(ctx, c, jobs)
	if err != nil {
		return err
	}
	if unexpected(c, jobs) { // most likely the cache does not know yet that it was expected
		if ok, err := r.asStored(ctx, c); err != nil || !ok {
			return err
		}
	}
	before := c.Status.DeepCopy()
	for _, e := range Account(&c.Status, jobs, lost) {
		r.Events.Event(c, e.Type, e.Reason, e.Message)
	}
	removeErr := r.remove(ctx, c, Outdated(c, jobs))
	again, startErr := r.start(ctx, c)
	if !apiequality.Semantic.DeepEqual(*before, c.Status) {
		if _, err := r.Client.BatchV1().CronJobs(namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("write the status of CronJob %s: %w", key, err), startErr, removeErr)
		}
	}
	if again > 0 {
		r.AddAfter(key, again)
	}
	return errors.Join(startErr, removeErr)
}

// of returns the jobs of a cron job.
func (r *controller) of(c *batchv1.CronJob) (jobs []*batchv1.Job, err error) {
	found, err := r.jobs.ByIndex(ofCronJob, string(c.UID))
	if err != nil {
		return nil, err
	}
	for _, obj := range found {
		if job := obj.(*batchv1.Job); job.Namespace == c.Namespace {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// lost are the jobs that the status calls active and that are not there any more: the API is asked, for the cache may not have them yet.
func (r *controller) lost(ctx context.Context, c *batchv1.CronJob, jobs []*batchv1.Job) (lost []types.UID, err error) {
	for _, ref := range c.Status.Active {
		if slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.UID == ref.UID }) {
			continue
		}
		live, err := r.Client.BatchV1().Jobs(c.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != ref.UID:
			lost = append(lost, ref.UID)
		case err != nil:
			return nil, fmt.Errorf("look for job %s: %w", ref.Name, err)
		}
	}
	return lost, nil
}

// start makes the job that is due, if there is one, and says when to look again.
func (r *controller) start(ctx context.Context, c *batchv1.CronJob) (again time.Duration, err error) {
	if c.DeletionTimestamp != nil || c.Spec.Suspend != nil && *c.Spec.Suspend {
		return 0, nil
	}
	s, err := ScheduleOf(c)
	if err != nil { // until it is changed there is nothing to do
		reason := "UnparseableSchedule"
		if errors.Is(err, ErrZone) {
			reason = "UnknownTimeZone"
		}
		r.Events.Event(c, corev1.EventTypeWarning, reason, err.Error())
		return 0, nil
	}
	now := r.Now()
	again, _ = s.Again(now)
	due, many := s.Due(c, now)
	if many {
		r.Events.Event(c, corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if due.IsZero() {
		return again, nil
	}
	if d := c.Spec.StartingDeadlineSeconds; d != nil && due.Add(time.Duration(*d)*time.Second).Before(now) {
		r.Events.Event(c, corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: "+due.UTC().Format(time.RFC1123Z))
		return again, nil
	}
	if c.Status.LastScheduleTime != nil && c.Status.LastScheduleTime.Time.Equal(due) {
		return again, nil
	}
	if ok, err := r.asStored(ctx, c); err != nil || !ok {
		return again, err
	}
	switch c.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(c.Status.Active) > 0 {
			r.Events.Event(c, corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return again, nil
		}
	case batchv1.ReplaceConcurrent:
		if err := r.replace(ctx, c); err != nil {
			return again, err
		}
	}
	return again, r.create(ctx, c, newJob(c, s, due), due)
}

// asStored reports whether a cron job is what is stored: what is decided by an older one, which does not know of a job that runs, may be one job too many.
func (r *controller) asStored(ctx context.Context, c *batchv1.CronJob) (bool, error) {
	live, err := r.Client.BatchV1().CronJobs(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if live.UID != c.UID || live.ResourceVersion != c.ResourceVersion {
		return false, fmt.Errorf("CronJob %s/%s has changed meanwhile", c.Namespace, c.Name)
	}
	return true, nil
}

// replace deletes the jobs that run still.
func (r *controller) replace(ctx context.Context, c *batchv1.CronJob) error {
	for _, ref := range slices.Clone(c.Status.Active) {
		job, err := r.Client.BatchV1().Jobs(c.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && job.UID != ref.UID {
			c.Status.Active = slices.DeleteFunc(c.Status.Active, func(o corev1.ObjectReference) bool { return o.UID == ref.UID })
			continue
		}
		if err != nil {
			r.Events.Eventf(c, corev1.EventTypeWarning, "FailedGet", "Get job: %v", err)
			return err
		}
		if err := r.remove(ctx, c, []*batchv1.Job{job}); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes jobs with their pods.
func (r *controller) remove(ctx context.Context, c *batchv1.CronJob, jobs []*batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	for _, job := range jobs {
		uid := job.UID
		err := r.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another has the name
			r.Events.Eventf(c, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
			return fmt.Errorf("delete job %s: %w", job.Name, err)
		}
		c.Status.Active = slices.DeleteFunc(c.Status.Active, func(o corev1.ObjectReference) bool { return o.UID == uid })
		if err == nil {
			r.Events.Event(c, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job "+job.Name)
		}
	}
	return nil
}

func (r *controller) create(ctx context.Context, c *batchv1.CronJob, job *batchv1.Job, due time.Time) error {
	made, err := r.Client.BatchV1().Jobs(c.Namespace).Create(ctx, job, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case apierrors.IsAlreadyExists(err):
		// It was made by an attempt whose status was not written, or is somebody else's.
		made, err = r.Client.BatchV1().Jobs(c.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("look at job %s: %w", job.Name, err)
		}
		if !metav1.IsControlledBy(made, c) {
			r.Events.Eventf(c, corev1.EventTypeWarning, "FailedCreate", "Error creating job: a job of the name %s is there, and is not this one's", job.Name)
			return fmt.Errorf("job %s is somebody else's", job.Name)
		}
	case err != nil:
		r.Events.Eventf(c, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job %s: %w", job.Name, err)
	default:
		r.Events.Eventf(c, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", made.Name)
	}
	if _, finished := ended(made); !finished && !slices.ContainsFunc(c.Status.Active, func(o corev1.ObjectReference) bool { return o.UID == made.UID }) {
		c.Status.Active = append(c.Status.Active, corev1.ObjectReference{Kind: "Job", APIVersion: batchv1.SchemeGroupVersion.String(),
			Namespace: made.Namespace, Name: made.Name, UID: made.UID, ResourceVersion: made.ResourceVersion})
	}
	c.Status.LastScheduleTime = &metav1.Time{Time: due}
	return nil
}
