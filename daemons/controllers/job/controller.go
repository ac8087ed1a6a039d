// Package job runs the pods of a Job until enough of them have succeeded or too many have failed. Every finished pod is
// counted once: it has a finalizer until the status includes it.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

type controller struct {
	loop.Context
	loop.Loop
	jobs            batchlisters.JobLister
	pods            loop.PodIndex
	expect          loop.Expectations
	writtenVersions loop.WrittenVersions // counted pods lose their finalizer after the status is written
	counts          counts

	orphans loop.Loop // keys of orphaned pods that still have the tracking finalizer
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	jobs, pods := informers.Jobs(c.Informers), informers.Pods(c.Informers)
	j := &controller{
		Context: c,
		jobs:    jobs.Lister(),
		pods:    loop.PodsByOwner(pods.Informer()),
		expect:  loop.Expectations{Now: c.Now},
	}
	j.counts = newCounts(c)
	j.Loop = loop.Loop{
		Name:    "job",
		Context: c,
		Sync:    j.sync,
		Synced:  []cache.InformerSynced{jobs.Informer().HasSynced, pods.Informer().HasSynced},
	}
	j.orphans = loop.Loop{
		Name:            "job-released",
		QueueMetricName: "job_orphan_pod",
		Context:         c,
		Workers:         1,
		Sync:            j.releaseOrphan,
		Synced:          j.Synced,
	}
	c.OnChange(jobs.Informer(), func(old, obj any) {
		if obj == nil {
			obj = old
		} else if job, ok := obj.(*batchv1.Job); ok && old == nil && isManagedExternally(job) {
			j.counts.external.WithLabelValues(*job.Spec.ManagedBy).Inc()
		}
		j.Add(obj)
	})
	c.OnChange(pods.Informer(), j.podChanged)
	return j
}

func (j *controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return j.Loop.Run(ctx) })
	g.Go(func() error { return j.orphans.Run(ctx) })
	return g.Wait()
}

func (j *controller) podChanged(old, obj any) {
	j.counts.observePod(old, obj)
	if old != nil {
		before := old.(*corev1.Pod)
		if key := loop.OwnerKey(before, kind.Kind); key != "" {
			if obj == nil {
				j.expect.Deleted(key, string(before.UID))
			}
			j.Queue().Add(key)
		}
	}
	if obj == nil {
		return
	}
	after := obj.(*corev1.Pod)
	if key := loop.OwnerKey(after, kind.Kind); key != "" {
		if old == nil {
			j.expect.Created(key)
		}
		if after.DeletionTimestamp != nil {
			j.expect.Deleted(key, string(after.UID))
		}
		j.Queue().Add(key)
	} else if metav1.GetControllerOfNoCopy(after) == nil && isTracked(after) {
		j.orphans.Add(after)
	}
}

// releaseOrphan removes the tracking finalizer from a pod that no job will count any more, because it was orphaned or
// released. A job that adopts the pod adds the finalizer again.
func (j *controller) releaseOrphan(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	pod, err := j.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read pod %s: %w", key, err)
	}
	return j.removeFinalizers(ctx, []*corev1.Pod{pod},
		func(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod) == nil })
}

func (j *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := j.jobs.Jobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		j.expect.Delete(key)
		j.writtenVersions.Delete(key)
		return j.releasePodsOfDeletedJob(ctx, namespace, name, "")
	} else if err != nil {
		return err
	}
	if j.writtenVersions.IsBehind(key, cached.ResourceVersion) {
		return nil // the watch will deliver the written status and queue this key again
	}
	if cached.Status.StartTime == nil {
		if err := j.releasePodsOfDeletedJob(ctx, namespace, name, cached.UID); err != nil {
			return err
		}
	}
	job := cached.DeepCopy()
	if isManagedExternally(job) {
		return j.expire(ctx, job)
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil
	}
	// Check expectations before listing the pods. In the other order, a pod created in between would count as observed
	// and be missing from the list.
	met := j.expect.IsMet(key)
	pods, err := loop.ClaimPods(
		ctx,
		j.Client,
		j.pods,
		job,
		kind,
		selector,
		[]string{batchv1.JobTrackingFinalizer},
		func(ctx context.Context) (metav1.Object, error) {
			return j.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		},
	)
	if err != nil {
		return err
	}
	if job.DeletionTimestamp != nil || IsFinished(job) {
		// Pods of a finished or deleted job must not wait to be counted.
		if err := j.removeFinalizers(ctx, pods, func(*corev1.Pod) bool { return true }); err != nil {
			return err
		}
		return j.expire(ctx, job)
	}
	return j.reconcile(ctx, key, job, pods, met)
}

// reconcile creates and deletes the pods of a running job and updates its status. met reports whether the cache shows
// the controller's own earlier creations and deletions.
func (j *controller) reconcile(
	ctx context.Context,
	key string,
	job *batchv1.Job,
	pods []*corev1.Pod,
	met bool,
) (err error) {
	now, action, mode := j.Now(), "reconciling", completionMode(job)
	defer func() { j.counts.observeSync(mode, action, err, j.Now().Sub(now)) }()
	before := job.Status.DeepCopy()
	d := Decide(job, pods, now)
	switch {
	case !met:
		d.Create, d.Delete = nil, nil
	case len(d.Delete) > 0:
		action = "pods_deleted"
	case len(d.Create) > 0:
		action = "pods_created"
	default:
		action = "tracking"
	}
	if !apiequality.Semantic.DeepEqual(*before, job.Status) {
		written, err := j.Client.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("write the status of Job %s: %w", key, err)
		}
		j.writtenVersions.Record(key, written.ResourceVersion)
		j.recordEvents(job, before)
		j.counts.observeStatus(job, before)
		j.counts.observeRuled(d.MatchedByRule, func(uid types.UID) bool { return !d.Release[uid] })
		job = written
	}
	named := uncountedUIDs(job)
	if err := j.removeFinalizers(ctx, pods, func(pod *corev1.Pod) bool {
		return named.Has(pod.UID) || d.Release[pod.UID]
	}); err != nil {
		return err
	}
	j.counts.observeRuled(d.MatchedByRule, func(uid types.UID) bool { return d.Release[uid] })
	if d.RequeueAfter > 0 {
		j.AddAfter(key, d.RequeueAfter)
	}
	return j.act(ctx, key, job, d)
}

func (j *controller) act(ctx context.Context, key string, job *batchv1.Job, d Decision) error {
	uids := make([]string, len(d.Delete))
	for i, pod := range d.Delete {
		uids[i] = string(pod.UID)
	}
	still := func() bool {
		current, err := j.jobs.Jobs(job.Namespace).Get(job.Name)
		return err == nil && loop.HasSameSpec(current, job)
	}
	j.expect.Expect(key, len(d.Create), uids...)
	deleted, deleteErr := loop.InBatches(ctx, len(d.Delete), still, func(ctx context.Context, i int) error {
		err := j.stopPod(ctx, job, d.Delete[i])
		if err != nil {
			j.expect.Deleted(key, uids[i])
		}
		return err
	})
	for _, uid := range uids[deleted:] {
		j.expect.Deleted(key, uid)
	}
	created, err := loop.InBatches(ctx, len(d.Create), still, func(ctx context.Context, i int) error {
		err := loop.CreatePod(ctx, j.Context, job, newPod(job, d.Create[i], d.Replaces[d.Create[i]]))
		if err != nil {
			j.expect.Created(key)
		}
		return err
	})
	for range len(d.Create) - created {
		j.expect.Created(key)
	}
	j.counts.observeCreated(job, created, err)
	return errors.Join(deleteErr, err)
}

// releasePodsOfDeletedJob removes the finalizer from pods whose job was deleted before it could count them. now is the
// UID of the job that has the same name now, or empty.
func (j *controller) releasePodsOfDeletedJob(ctx context.Context, namespace, name string, now types.UID) error {
	var pods []*corev1.Pod
	for _, pod := range j.pods.In(namespace) {
		if isTracked(pod) && loop.OwnerKey(pod, kind.Kind) == namespace+"/"+name &&
			metav1.GetControllerOfNoCopy(pod).UID != now {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	live, err := j.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && live.UID != now {
		return nil // the job exists, and the cache will show it
	}
	return j.removeFinalizers(ctx, pods, func(*corev1.Pod) bool { return true })
}

// stopPod deletes a pod. A stopped pod counts as failed only if the job itself is about to fail. Otherwise the
// finalizer is removed first: a pod that the job no longer needs has not failed.
func (j *controller) stopPod(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) error {
	if isTracked(pod) && !hasCondition(job.Status.Conditions, batchv1.JobFailureTarget) {
		released, err := j.untrack(ctx, pod)
		if err != nil {
			return err
		}
		pod = released
	}
	return loop.DeletePod(ctx, j.Context, job, pod)
}

// removeFinalizers removes the tracking finalizer from those of pods that which selects.
func (j *controller) removeFinalizers(ctx context.Context, pods []*corev1.Pod, which func(*corev1.Pod) bool) error {
	for _, pod := range pods {
		if !isTracked(pod) || !which(pod) {
			continue
		}
		if _, err := j.untrack(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// untrack removes the tracking finalizer from a pod and returns the updated pod.
func (j *controller) untrack(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	kept := slices.DeleteFunc(slices.Clone(pod.Finalizers),
		func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	patch, err := json.Marshal(
		map[string]any{
			"metadata": map[string]any{"finalizers": kept, "uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		},
	)
	if err != nil {
		return nil, err
	}
	released, err := j.Client.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("remove the finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return released, nil
}

// expire deletes a finished job when its ttlSecondsAfterFinished has passed.
func (j *controller) expire(ctx context.Context, job *batchv1.Job) error {
	if job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil || !IsFinished(job) {
		return nil
	}
	var late time.Duration
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			left := c.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second).
				Sub(j.Now())
			if left > 0 {
				j.AddAfter(job.Namespace+"/"+job.Name, left)
				return nil
			}
			late = -left
		}
	}
	foreground, options := metav1.DeletePropagationForeground, loop.IfUnchanged(job)
	options.PropagationPolicy = &foreground
	err := j.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		j.counts.expired.WithLabelValues().Observe(late.Seconds())
	}
	return err
}

// isManagedExternally reports whether spec.managedBy gives the job to another controller. Its ttlSecondsAfterFinished
// is still enforced here.
func isManagedExternally(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

func (j *controller) recordEvents(job *batchv1.Job, before *batchv1.JobStatus) {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse &&
			hasCondition(before.Conditions, c.Type) {
			j.Events.Event(job, corev1.EventTypeNormal, "Resumed", "Job resumed")
		}
		if c.Status != corev1.ConditionTrue || hasCondition(before.Conditions, c.Type) {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			if n := job.Spec.Completions; n != nil && job.Status.Succeeded > *n {
				j.Events.Event(job, corev1.EventTypeWarning, "TooManySucceededPods",
					"Too many succeeded pods running after completion count reached")
			}
			j.Events.Event(job, corev1.EventTypeNormal, "Completed", "Job completed")
		case batchv1.JobFailed:
			j.Events.Event(job, corev1.EventTypeWarning, c.Reason, c.Message)
		case batchv1.JobSuspended:
			j.Events.Event(job, corev1.EventTypeNormal, "Suspended", "Job suspended")
		}
	}
}

// IsFinished reports whether a job has completed or failed for good.
func IsFinished(job *batchv1.Job) bool {
	return hasCondition(job.Status.Conditions, batchv1.JobComplete) ||
		hasCondition(job.Status.Conditions, batchv1.JobFailed)
}

func hasCondition(conditions []batchv1.JobCondition, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(conditions,
		func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func isTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}
