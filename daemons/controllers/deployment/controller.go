// Package deployment rolls out a Deployment's template. It creates a ReplicaSet for each template and moves replicas
// from old sets to the new one within the strategy's limits. It numbers revisions, deletes old ones and reports
// progress. The ReplicaSet controller manages the pods.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

type controller struct {
	loop.Context
	loop.Loop
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	pods        loop.PodIndex
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	deployments := informers.Deployments(c.Informers)
	sets := informers.ReplicaSets(c.Informers)
	pods := informers.Pods(c.Informers)
	d := &controller{
		Context:     c,
		deployments: deployments.Lister(),
		sets:        sets.Lister(),
		pods:        loop.PodsByOwner(pods.Informer()),
	}
	d.Loop = loop.Loop{Name: "deployment", Context: c, Sync: d.sync,
		Synced: []cache.InformerSynced{
			deployments.Informer().HasSynced,
			sets.Informer().HasSynced,
			pods.Informer().HasSynced,
		}}
	c.On(deployments.Informer(), d.Add)
	c.On(sets.Informer(), func(obj any) {
		set := obj.(*appsv1.ReplicaSet)
		if key := loop.OwnerKey(set, kind.Kind); key != "" {
			d.Queue().Add(key)
		} else if metav1.GetControllerOfNoCopy(set) == nil {
			d.enqueueAdopters(set)
		}
	})
	c.OnChange(pods.Informer(), func(old, obj any) {
		if old == nil {
			return
		}
		// Recreate waits until the last old pod is deleted or has ended.
		if before := old.(*corev1.Pod); obj == nil || !hasEnded(before) && hasEnded(obj.(*corev1.Pod)) {
			d.podDeleted(before)
		}
	})
	return d
}

// enqueueAdopters queues the deployments whose selector matches an orphaned ReplicaSet.
func (d *controller) enqueueAdopters(set *appsv1.ReplicaSet) {
	deployments, err := d.deployments.Deployments(set.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, deployment := range deployments {
		selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels)) {
			d.Add(deployment)
		}
	}
}

func (d *controller) podDeleted(pod *corev1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	set, err := d.sets.ReplicaSets(pod.Namespace).Get(ref.Name)
	if err != nil {
		return
	}
	if key := loop.OwnerKey(set, kind.Kind); key != "" {
		d.Queue().Add(key)
	}
}

func (d *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := d.deployments.Deployments(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	deployment := cached.DeepCopy()
	sets, err := d.claimSets(ctx, deployment)
	if err != nil {
		return err
	}
	newSet := currentSet(deployment, sets)
	if deployment.DeletionTimestamp != nil {
		return d.writeStatus(ctx, deployment, newSet, sets, outcome{idleReason: idleDeleting})
	}
	if deployment.Spec.Paused || d.isResized(deployment, sets) {
		return d.syncWithoutRollout(ctx, deployment, newSet, sets)
	}
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		cleared, err := d.scaleDownOld(ctx, deployment, oldSets(sets, newSet))
		if err != nil {
			return err
		}
		if !cleared {
			return d.writeStatus(ctx, deployment, newSet, sets, outcome{})
		}
	}
	var o outcome
	if newSet == nil {
		if newSet, o, err = d.createSet(ctx, deployment, sets); err != nil {
			return err
		}
		if o.failure != nil {
			return errors.Join(o.failure, d.writeStatus(ctx, deployment, nil, sets, o))
		}
	}
	if newSet != nil {
		sets = append(oldSets(sets, newSet), newSet)
		if newSet, err = d.setRevision(ctx, deployment, newSet, sets); err != nil {
			return err
		}
	}
	if err := d.rollStep(ctx, deployment, newSet, sets); err != nil {
		return err
	}
	if err := d.writeStatus(ctx, deployment, newSet, sets, o); err != nil {
		return err
	}
	if !isComplete(deployment, newStatus(deployment, newSet, sets, outcome{}, d.Now())) {
		return nil
	}
	return d.deleteOldSets(ctx, deployment, oldSets(sets, newSet))
}

// syncWithoutRollout handles a sync without a rollout: the deployment is paused, or the wanted number of replicas has
// changed.
func (d *controller) syncWithoutRollout(
	ctx context.Context,
	deployment *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
) (err error) {
	if newSet != nil {
		if newSet, err = d.setRevision(ctx, deployment, newSet, sets); err != nil {
			return err
		}
	}
	if err := d.scaleAll(ctx, deployment, newSet, sets); err != nil {
		return err
	}
	if deployment.Spec.Paused {
		if err := d.deleteOldSets(ctx, deployment, oldSets(sets, newSet)); err != nil {
			return err
		}
	}
	return d.writeStatus(ctx, deployment, newSet, sets, outcome{idleReason: idleScaling})
}

// rollStep moves replicas by one step. Each change of a ReplicaSet queues the deployment again.
func (d *controller) rollStep(
	ctx context.Context,
	deployment *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
) error {
	old := oldSets(sets, newSet)
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		if newSet != nil && replicasOrDefault(newSet.Spec.Replicas) != replicasOrDefault(deployment.Spec.Replicas) {
			return d.scale(ctx, deployment, newSet, replicasOrDefault(deployment.Spec.Replicas))
		}
		return nil
	}
	if newSet == nil {
		return nil // its namespace is being deleted
	}
	for set, n := range nextReplicas(deployment, newSet, old) {
		if err := d.scale(ctx, deployment, set, n); err != nil {
			return err
		}
	}
	return nil
}

// scaleDownOld scales the old sets to zero, for the strategy Recreate, and reports whether all their pods have ended.
// Pods that are still ending count, no matter whether the new set exists already.
func (d *controller) scaleDownOld(
	ctx context.Context,
	deployment *appsv1.Deployment,
	old []*appsv1.ReplicaSet,
) (cleared bool, err error) {
	cleared = true
	for _, set := range old {
		if replicasOrDefault(set.Spec.Replicas) > 0 {
			if err := d.scale(ctx, deployment, set, 0); err != nil {
				return false, err
			}
		}
		if !isEmptied(set, d.pods.Of(set.UID)) {
			cleared = false
		}
	}
	return cleared, nil
}

// isEmptied reports whether a set has no pods and will create none, because its controller has observed that none is
// wanted.
func isEmptied(set *appsv1.ReplicaSet, pods []*corev1.Pod) bool {
	if replicasOrDefault(set.Spec.Replicas) > 0 || set.Status.ObservedGeneration < set.Generation ||
		set.Status.Replicas > 0 {
		return false
	}
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !hasEnded(pod) })
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (d *controller) writeStatus(
	ctx context.Context,
	deployment *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
	o outcome,
) error {
	now := d.Now()
	want := newStatus(deployment, newSet, sets, o, now)
	if c := findCondition(want, appsv1.DeploymentProgressing); c != nil && c.Reason != reasonTimedOut &&
		c.Reason != reasonRolledOut &&
		o.idleReason == "" {
		// A rollout that is stuck causes no events, so the deadline needs a timer.
		due := c.LastUpdateTime.Add(time.Duration(*deployment.Spec.ProgressDeadlineSeconds) * time.Second)
		d.AddAfter(deployment.Namespace+"/"+deployment.Name, max(due.Sub(now), 0)+time.Second)
	}
	if apiequality.Semantic.DeepEqual(deployment.Status, want) {
		return nil
	}
	updated := deployment.DeepCopy()
	updated.Status = want
	_, err := d.Client.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of Deployment %s/%s: %w", deployment.Namespace, deployment.Name, err)
	}
	return nil
}

func oldSets(sets []*appsv1.ReplicaSet, newSet *appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, set := range sets {
		if newSet == nil || set.UID != newSet.UID {
			out = append(out, set)
		}
	}
	return out
}
