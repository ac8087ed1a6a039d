// Package replicaset runs as many pods as a ReplicaSet or ReplicationController asks for. It creates, adopts, releases
// and deletes pods, and reports their numbers. The Deployment controller decides which template to run.
package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	kind
	pods   loop.PodIndex
	expect loop.Expectations
}

// New returns the controller for ReplicaSets.
func New(c loop.Context) loop.Controller { return newController(c, replicaSets(c)) }

// NewReplicationControllers returns the controller for ReplicationControllers.
func NewReplicationControllers(c loop.Context) loop.Controller {
	return newController(c, replicationControllers(c))
}

func newController(c loop.Context, k kind) *controller {
	pods := informers.Pods(c.Informers)
	r := &controller{
		Context: c,
		kind:    k,
		pods:    loop.PodsByOwner(pods.Informer()),
		expect:  loop.Expectations{Now: c.Now},
	}
	r.Loop = loop.Loop{Name: k.name, QueueMetricName: k.queueMetricName, Context: c, Sync: r.sync, Workers: k.workers,
		Synced: []cache.InformerSynced{k.informer.HasSynced, pods.Informer().HasSynced}}
	c.OnChange(k.informer, func(old, obj any) {
		if obj == nil {
			if key, err := cache.MetaNamespaceKeyFunc(old); err == nil {
				r.expect.Delete(key)
			}
			return
		}
		r.Add(obj)
	})
	c.OnChange(pods.Informer(), r.podChanged)
	return r
}

func (r *controller) podChanged(old, obj any) {
	var before, after *corev1.Pod
	if old != nil {
		before = old.(*corev1.Pod)
		if key := loop.OwnerKey(before, r.gvk.Kind); key != "" {
			if obj == nil || obj.(*corev1.Pod).DeletionTimestamp != nil {
				r.expect.Deleted(key, string(before.UID))
			}
			r.Queue().Add(key)
		}
	}
	if obj == nil {
		return
	}
	after = obj.(*corev1.Pod)
	if key := loop.OwnerKey(after, r.gvk.Kind); key != "" {
		if before == nil {
			r.expect.Created(key)
		}
		if after.DeletionTimestamp != nil {
			r.expect.Deleted(key, string(after.UID))
		}
		r.Queue().Add(key)
	} else if metav1.GetControllerOfNoCopy(after) == nil && after.DeletionTimestamp == nil {
		r.enqueueAdopters(after)
	}
}

// enqueueAdopters queues the sets whose selector matches an orphaned pod.
func (r *controller) enqueueAdopters(pod *corev1.Pod) {
	for _, key := range r.matching(pod) {
		r.Queue().Add(key)
	}
}

func (r *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	set, err := r.get(namespace, name)
	if apierrors.IsNotFound(err) {
		r.expect.Delete(key)
		return nil
	} else if err != nil {
		return err
	}
	met := r.expect.IsMet(key)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil // the API server refuses such a set
	}
	pods, err := r.claimPods(ctx, set, selector)
	if err != nil {
		return err
	}
	var active []*corev1.Pod
	for _, pod := range pods {
		if loop.IsActive(pod) {
			active = append(active, pod)
		}
	}
	var manageErr error
	if met && set.DeletionTimestamp == nil {
		manageErr = r.manage(ctx, key, set, active)
	}
	status := Status(set.ReplicaSet, active, pods, manageErr, r.Now())
	if err := r.writeStatus(ctx, set, status); err != nil {
		return err
	}
	if again := loop.UntilAvailable(active, time.Duration(set.Spec.MinReadySeconds)*time.Second, r.Now()); again > 0 {
		r.AddAfter(key, again)
	}
	return manageErr
}

func (r *controller) claimPods(ctx context.Context, set *set, selector labels.Selector) ([]*corev1.Pod, error) {
	return loop.ClaimPods(
		ctx,
		r.Client,
		r.pods,
		set,
		r.gvk,
		selector,
		nil,
		func(ctx context.Context) (metav1.Object, error) {
			return r.readLive(ctx, set.Namespace, set.Name)
		},
	)
}

// manage creates missing pods, or deletes excess pods.
func (r *controller) manage(ctx context.Context, key string, set *set, active []*corev1.Pod) error {
	want := int(replicasOrDefault(set.ReplicaSet))
	switch missing := want - len(active); {
	case missing > 0:
		missing = min(missing, loop.Burst)
		r.expect.Expect(key, missing)
		called, err := loop.InBatches(ctx, missing, r.unchangedCheck(set), func(ctx context.Context, _ int) error {
			err := loop.CreatePod(ctx, r.Context, set.object, loop.PodFromTemplate(&set.Spec.Template, set, r.gvk))
			if err != nil {
				r.expect.Created(key)
			}
			return err
		})
		for range missing - called {
			r.expect.Created(key)
		}
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	case missing < 0:
		return r.deleteExcess(ctx, key, set, active, min(-missing, loop.Burst))
	}
	return nil
}

// unchangedCheck returns a function that reports whether a set's spec is unchanged since the decision.
func (r *controller) unchangedCheck(set *set) func() bool {
	return func() bool {
		current, err := r.get(set.Namespace, set.Name)
		return err == nil && loop.HasSameSpec(current, set)
	}
}

func (r *controller) deleteExcess(ctx context.Context, key string, set *set, active []*corev1.Pod, n int) error {
	loop.DeletionOrder(active, r.podsPerNode(set, active), r.Now())
	doomed := active[:n]
	uids := make([]string, n)
	for i, pod := range doomed {
		uids[i] = string(pod.UID)
	}
	r.expect.Expect(key, 0, uids...)
	called, err := loop.InBatches(ctx, n, r.unchangedCheck(set), func(ctx context.Context, i int) error {
		err := loop.DeletePod(ctx, r.Context, set.object, doomed[i])
		if err != nil {
			r.expect.Deleted(key, uids[i])
		}
		return err
	})
	for _, uid := range uids[called:] {
		r.expect.Deleted(key, uid)
	}
	return err
}

// podsPerNode counts by node the active pods of a set and of the other sets with the same controller. When pods are
// deleted, those on nodes with many such pods go first.
func (r *controller) podsPerNode(set *set, active []*corev1.Pod) map[string]int {
	out := map[string]int{}
	for _, pod := range active {
		out[pod.Spec.NodeName]++
	}
	for _, uid := range r.siblings(set) {
		for _, pod := range r.pods.Of(uid) {
			if loop.IsActive(pod) {
				out[pod.Spec.NodeName]++
			}
		}
	}
	return out
}

func (r *controller) writeStatus(ctx context.Context, set *set, status appsv1.ReplicaSetStatus) error {
	if !r.reportsTerminating {
		status.TerminatingReplicas = nil
	}
	if sameStatus(set.Status, status) {
		return nil
	}
	if err := r.update(ctx, set, status); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of %s %s/%s: %w", r.gvk.Kind, set.Namespace, set.Name, err)
	}
	return nil
}
