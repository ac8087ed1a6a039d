// Package cronjob creates jobs at the times of a schedule. The name of a job is determined by its time, so that several
// attempts create one job. The job controller runs the job.
package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

const ownerIndex = "controller"

type controller struct {
	loop.Context
	loop.Loop
	cronJobs batchlisters.CronJobLister
	jobs     cache.Indexer
	skew     *prometheus.HistogramVec // seconds between the scheduled time and the creation of the job
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	cronJobs, jobs := informers.CronJobs(c.Informers), informers.Jobs(c.Informers)
	// Adding the index again fails and is harmless.
	_ = jobs.Informer().AddIndexers(cache.Indexers{ownerIndex: func(obj any) ([]string, error) {
		if job, ok := obj.(*batchv1.Job); ok {
			if ref := metav1.GetControllerOfNoCopy(job); ref != nil {
				return []string{string(ref.UID)}, nil
			}
		}
		return nil, nil
	}})
	j := &controller{Context: c, cronJobs: cronJobs.Lister(), jobs: jobs.Informer().GetIndexer()}
	j.skew = c.Histogram("cronjob_controller_job_creation_skew_duration_seconds",
		"How long after its scheduled time a job was created.", prometheus.ExponentialBuckets(1, 2, 10))
	j.Loop = loop.Loop{
		Name:    "cronjob",
		Context: c,
		Sync:    j.sync,
		Synced:  []cache.InformerSynced{cronJobs.Informer().HasSynced, jobs.Informer().HasSynced},
	}
	c.OnChange(cronJobs.Informer(), j.enqueueChanged)
	c.On(jobs.Informer(), func(obj any) {
		if key := loop.OwnerKey(obj.(*batchv1.Job), kind.Kind); key != "" {
			j.Queue().Add(key)
		}
	})
	return j
}

// enqueueChanged queues a CronJob. If its schedule or time zone changed, it waits for the next time. It must not start
// a job for a past time of the new schedule.
func (j *controller) enqueueChanged(old, obj any) {
	before, _ := old.(*batchv1.CronJob)
	after, _ := obj.(*batchv1.CronJob)
	switch {
	case after == nil:
		j.Add(before)
		return
	case before != nil && (before.Spec.Schedule != after.Spec.Schedule ||
		!ptr.Equal(before.Spec.TimeZone, after.Spec.TimeZone)):
		if wait, ok := untilNext(after, j.Now()); ok {
			j.AddAfter(after.Namespace+"/"+after.Name, wait)
			return
		}
	}
	j.Add(after)
}

func (j *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := j.cronJobs.CronJobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	jobs, err := j.jobsOf(cached)
	if err != nil {
		return err
	}
	cj, d, err := j.decideOnCopy(ctx, cached, jobs)
	if err != nil {
		return err
	}
	if !d.Start.IsZero() {
		// The cache may not show yet that a job was started or that the CronJob was suspended.
		live, err := j.Client.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read CronJob %s before starting a job: %w", key, err)
		}
		if live.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent {
			if jobs, err = j.liveJobsOf(ctx, live); err != nil {
				return err
			}
		}
		cached = live
		if cj, d, err = j.decideOnCopy(ctx, live, jobs); err != nil {
			return err
		}
	}
	for _, e := range d.Events {
		j.Events.Event(cached, e.Type, e.Reason, e.Message)
	}
	if d.RequeueAfter > 0 {
		j.AddAfter(key, d.RequeueAfter)
	}
	acted := j.act(ctx, cj, d)
	if !apiequality.Semantic.DeepEqual(cached.Status, cj.Status) {
		if _, err := j.Client.BatchV1().CronJobs(namespace).UpdateStatus(ctx, cj, metav1.UpdateOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			acted = errors.Join(acted, fmt.Errorf("write the status of CronJob %s: %w", key, err))
		}
	}
	return acted
}

func (j *controller) jobsOf(cj *batchv1.CronJob) ([]*batchv1.Job, error) {
	objs, err := j.jobs.ByIndex(ownerIndex, string(cj.UID))
	if err != nil {
		return nil, err
	}
	jobs := make([]*batchv1.Job, 0, len(objs))
	for _, obj := range objs {
		jobs = append(jobs, obj.(*batchv1.Job))
	}
	return jobs, nil
}

// liveJobsOf returns a CronJob's jobs from the API server. It is used before a job is started that must not run beside
// another: a former leader may have started one that is in neither the cache nor the status.
func (j *controller) liveJobsOf(ctx context.Context, cj *batchv1.CronJob) ([]*batchv1.Job, error) {
	list, err := j.Client.BatchV1().Jobs(cj.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the jobs of CronJob %s/%s: %w", cj.Namespace, cj.Name, err)
	}
	var jobs []*batchv1.Job
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], cj) {
			jobs = append(jobs, &list.Items[i])
		}
	}
	return jobs, nil
}

// decideOnCopy decides about a copy of a CronJob and its jobs, and returns both.
func (j *controller) decideOnCopy(
	ctx context.Context,
	from *batchv1.CronJob,
	jobs []*batchv1.Job,
) (*batchv1.CronJob, Decision, error) {
	cj := from.DeepCopy()
	jobs = slices.Clone(jobs)
	here := map[types.UID]bool{}
	for _, job := range jobs {
		here[job.UID] = true
	}
	removed := map[types.UID]bool{}
	for _, r := range cj.Status.Active {
		if here[r.UID] {
			continue
		}
		live, err := j.Client.BatchV1().Jobs(cj.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != r.UID:
			removed[r.UID] = true
		case err != nil:
			return nil, Decision{}, fmt.Errorf("read job %s/%s: %w", cj.Namespace, r.Name, err)
		default:
			jobs = append(jobs, live)
		}
	}
	return cj, Decide(cj, jobs, removed, j.Now()), nil
}

func (j *controller) act(ctx context.Context, cj *batchv1.CronJob, d Decision) error {
	var errs []error
	for _, job := range d.Expire {
		errs = append(errs, j.remove(ctx, cj, job.Name, job.UID))
	}
	for _, r := range d.Stop {
		if err := j.remove(ctx, cj, r.Name, r.UID); err != nil {
			return errors.Join(append(errs, err)...) // the running job must end before it is replaced
		}
		cj.Status.Active = slices.DeleteFunc(cj.Status.Active,
			func(a corev1.ObjectReference) bool { return a.UID == r.UID })
	}
	if !d.Start.IsZero() {
		errs = append(errs, j.start(ctx, cj, d))
	}
	return errors.Join(errs...)
}

// start creates the job of a scheduled time, or finds the existing one.
func (j *controller) start(ctx context.Context, cj *batchv1.CronJob, d Decision) error {
	wanted := newJob(cj, d.Start)
	job, err := j.Client.BatchV1().Jobs(cj.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		if job, err = j.Client.BatchV1().Jobs(cj.Namespace).Get(ctx, wanted.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("read job %s/%s: %w", cj.Namespace, wanted.Name, err)
		}
		if !metav1.IsControlledBy(job, cj) {
			j.Events.Eventf(cj, corev1.EventTypeWarning, "FailedCreate",
				"Error creating job: job %q is not this CronJob's", job.Name)
			return fmt.Errorf("job %s/%s is not of CronJob %s", job.Namespace, job.Name, cj.Name)
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		j.Events.Eventf(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("start job %s/%s: %w", cj.Namespace, wanted.Name, err)
	default:
		j.skew.WithLabelValues().Observe(job.CreationTimestamp.Sub(d.Start).Seconds())
		j.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	}
	if _, finished := finishedCondition(job); !finished {
		cj.Status.Active = append(cj.Status.Active, reference(job))
	}
	cj.Status.LastScheduleTime = &metav1.Time{Time: d.Start}
	return nil
}

// remove deletes a job. Its pods are deleted in the background.
func (j *controller) remove(ctx context.Context, cj *batchv1.CronJob, name string, uid types.UID) error {
	background := metav1.DeletePropagationBackground
	err := j.Client.BatchV1().Jobs(cj.Namespace).Delete(ctx, name,
		metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another job has its name
		return nil
	case err != nil:
		j.Events.Eventf(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete job %s/%s: %w", cj.Namespace, name, err)
	}
	j.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", name)
	return nil
}
