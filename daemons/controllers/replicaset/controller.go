// Package replicaset keeps as many pods as a ReplicaSet asks for: it makes, adopts,
// releases and deletes them, and reports how many there are. Which template to run is
// the Deployment controller's decision.
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
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

type controller struct {
	loop.Context
	loop.Loop
	sets   appslisters.ReplicaSetLister
	pods   loop.PodIndex
	expect loop.Expectations
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	sets := c.Informers.Apps().V1().ReplicaSets()
	pods := c.Informers.Core().V1().Pods()
	r := &controller{Context: c, sets: sets.Lister(), pods: loop.PodsByOwner(pods.Informer()), expect: loop.Expectations{Now: c.Now}}
	r.Loop = loop.Loop{Name: "replicaset", Log: c.Log, Sync: r.sync, Workers: 8,
		Synced: []cache.InformerSynced{sets.Informer().HasSynced, pods.Informer().HasSynced}}
	loop.OnChange(sets.Informer(), func(old, obj any) {
		if obj == nil {
			set := old.(*appsv1.ReplicaSet)
			r.expect.Forget(set.Namespace + "/" + set.Name)
			return
		}
		r.Add(obj)
	})
	loop.OnChange(pods.Informer(), r.podChanged)
	return r
}

func (r *controller) podChanged(old, obj any) {
	var was, is *corev1.Pod
	if old != nil {
		was = old.(*corev1.Pod)
		if key := loop.Owner(was, kind.Kind); key != "" {
			if obj == nil || obj.(*corev1.Pod).DeletionTimestamp != nil {
				r.expect.Deleted(key, string(was.UID))
			}
			r.Queue().Add(key)
		}
	}
	if obj == nil {
		return
	}
	is = obj.(*corev1.Pod)
	if key := loop.Owner(is, kind.Kind); key != "" {
		if was == nil {
			r.expect.Created(key)
		}
		if is.DeletionTimestamp != nil {
			r.expect.Deleted(key, string(is.UID))
		}
		r.Queue().Add(key)
	} else if metav1.GetControllerOf(is) == nil && is.DeletionTimestamp == nil {
		r.wakeAdopters(is)
	}
}

// wakeAdopters queues the sets whose selector matches a pod that nobody controls.
func (r *controller) wakeAdopters(pod *corev1.Pod) {
	sets, err := r.sets.GetPodReplicaSets(pod)
	if err != nil {
		return // nobody matches
	}
	for _, set := range sets {
		r.Add(set)
	}
}

func (r *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	set, err := r.sets.ReplicaSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		r.expect.Forget(key)
		return nil
	} else if err != nil {
		return err
	}
	met := r.expect.Met(key)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil // the API server refuses such a set
	}
	pods, err := r.claim(ctx, set, selector)
	if err != nil {
		return err
	}
	var active []*corev1.Pod
	for _, pod := range pods {
		if loop.Active(pod) {
			active = append(active, pod)
		}
	}
	var manageErr error
	if met && set.DeletionTimestamp == nil {
		manageErr = r.manage(ctx, key, set, active)
	}
	status := Status(set, active, pods, manageErr, r.Now())
	if err := r.writeStatus(ctx, set, status); err != nil {
		return err
	}
	if manageErr == nil && set.Spec.MinReadySeconds > 0 && status.ReadyReplicas != status.AvailableReplicas {
		r.AddAfter(key, time.Duration(set.Spec.MinReadySeconds)*time.Second)
	}
	return manageErr
}

func (r *controller) claim(ctx context.Context, set *appsv1.ReplicaSet, selector labels.Selector) ([]*corev1.Pod, error) {
	return loop.ClaimPods(ctx, r.Client, r.pods, set, kind, selector, nil, func(ctx context.Context) (metav1.Object, error) {
		return r.Client.AppsV1().ReplicaSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	})
}

// burst bounds how many pods one sync makes or deletes, so that other sets get their turn.
const burst = 500

// manage makes the pods that are missing, or deletes those that are too many.
func (r *controller) manage(ctx context.Context, key string, set *appsv1.ReplicaSet, active []*corev1.Pod) error {
	want := int(replicas(set))
	switch missing := want - len(active); {
	case missing > 0:
		missing = min(missing, burst)
		r.expect.Expect(key, missing)
		called, err := loop.InBatches(ctx, missing, func(ctx context.Context, _ int) error {
			err := loop.CreatePod(ctx, r.Context, set, loop.PodFromTemplate(&set.Spec.Template, set, kind))
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
		return r.deleteSome(ctx, key, set, active, min(-missing, burst))
	}
	return nil
}

func (r *controller) deleteSome(ctx context.Context, key string, set *appsv1.ReplicaSet, active []*corev1.Pod, n int) error {
	together := map[string]int{}
	for _, pod := range active {
		together[pod.Spec.NodeName]++
	}
	loop.DeletionOrder(active, together)
	doomed := active[:n]
	uids := make([]string, n)
	for i, pod := range doomed {
		uids[i] = string(pod.UID)
	}
	r.expect.Expect(key, 0, uids...)
	called, err := loop.InBatches(ctx, n, func(ctx context.Context, i int) error {
		err := loop.DeletePod(ctx, r.Context, set, doomed[i])
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

func (r *controller) writeStatus(ctx context.Context, set *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if sameStatus(set.Status, status) {
		return nil
	}
	updated := set.DeepCopy()
	updated.Status = status
	_, err := r.Client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of ReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}
