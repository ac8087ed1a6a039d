// Package daemonset runs one pod of a DaemonSet on every node that the set matches, and replaces pods node by node when
// the template changes. Each pod has an affinity to its node, so that the scheduler binds it there.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

type controller struct {
	loop.Context
	loop.Loop
	sets      appslisters.DaemonSetLister
	revisions loop.Revisions
	nodes     corelisters.NodeLister
	pods      loop.PodIndex
	expect    loop.Expectations
	failures  failures
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	sets, revisions := informers.DaemonSets(c.Informers), informers.ControllerRevisions(c.Informers)
	pods, nodes := informers.Pods(c.Informers), informers.Nodes(c.Informers)
	d := &controller{Context: c, sets: sets.Lister(), nodes: nodes.Lister(),
		revisions: loop.Revisions{
			Client: c.Client,
			Lister: revisions.Lister(),
			Label:  appsv1.DefaultDaemonSetUniqueLabelKey,
		},
		pods: loop.PodsByOwner(pods.Informer()), expect: loop.Expectations{Now: c.Now}}
	d.Loop = loop.Loop{
		Name:    "daemonset",
		Context: c,
		Sync:    d.sync,
		Synced: []cache.InformerSynced{sets.Informer().HasSynced,
			revisions.Informer().HasSynced, pods.Informer().HasSynced, nodes.Informer().HasSynced},
	}
	c.On(sets.Informer(), d.Add)
	c.OnChange(nodes.Informer(), d.nodeChanged)
	c.OnChange(pods.Informer(), d.podChanged)
	return d
}

// nodeChanged queues every set if a node changed in a way that affects which sets match it.
func (d *controller) nodeChanged(old, obj any) {
	if old != nil && obj != nil {
		a, b := old.(*corev1.Node), obj.(*corev1.Node)
		if apiequality.Semantic.DeepEqual(a.Labels, b.Labels) &&
			apiequality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) {
			return
		}
	}
	sets, err := d.sets.List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range sets {
		d.Add(set)
	}
}

func (d *controller) podChanged(old, obj any) {
	if old != nil {
		before := old.(*corev1.Pod)
		if key := loop.OwnerKey(before, kind.Kind); key != "" {
			if obj == nil {
				d.expect.Deleted(key, string(before.UID))
			}
			d.Queue().Add(key)
		}
	}
	if obj == nil {
		return
	}
	after := obj.(*corev1.Pod)
	if key := loop.OwnerKey(after, kind.Kind); key != "" {
		if old == nil {
			d.expect.Created(key)
		}
		if after.DeletionTimestamp != nil {
			d.expect.Deleted(key, string(after.UID))
		}
		d.Queue().Add(key)
	}
}

func (d *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := d.sets.DaemonSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		d.expect.Delete(key)
		d.failures.delete(key)
		return nil
	} else if err != nil {
		return err
	}
	set := cached.DeepCopy()
	if set.DeletionTimestamp != nil {
		return nil
	}
	met := d.expect.IsMet(key)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() {
		return nil
	}
	pods, err := loop.ClaimPods(ctx, d.Client, d.pods, set, kind, selector, nil, d.readLive(set))
	if err != nil {
		return err
	}
	hash, err := d.recordRevision(ctx, set)
	if err != nil {
		return err
	}
	nodes, err := d.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	at := NewPlacements(set, nodes, pods)
	var manageErr error
	if met {
		now := d.Now()
		manageErr = d.manage(ctx, key, set, hash, Plan(set, at, hash, now, d.failures.remainingWaits(set, now)))
	}
	return errors.Join(manageErr, d.writeStatus(ctx, set, cached.Status, at, hash))
}

// readLive reads a set from the server.
func (d *controller) readLive(set *appsv1.DaemonSet) func(context.Context) (metav1.Object, error) {
	return func(ctx context.Context) (metav1.Object, error) {
		return d.Client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}
}

func (d *controller) manage(ctx context.Context, key string, set *appsv1.DaemonSet, hash string, a Actions) error {
	a.Create, a.Delete = a.Create[:min(len(a.Create), loop.Burst)], a.Delete[:min(len(a.Delete), loop.Burst)]
	still := func() bool {
		current, err := d.sets.DaemonSets(set.Namespace).Get(set.Name)
		return err == nil && loop.HasSameSpec(current, set)
	}
	d.expect.Expect(key, len(a.Create), uids(a.Delete)...)
	created, err := loop.InBatches(ctx, len(a.Create), still, func(ctx context.Context, i int) error {
		err := loop.CreatePod(ctx, d.Context, set, newPod(set, a.Create[i], hash))
		if err != nil {
			d.expect.Created(key)
		}
		return err
	})
	for range len(a.Create) - created {
		d.expect.Created(key)
	}
	for _, pod := range a.Ended {
		if pod.Status.Phase == corev1.PodFailed {
			d.failures.recordFailure(set, targetNode(pod), d.Now())
			d.Events.Eventf(set, corev1.EventTypeWarning, "FailedDaemonPod",
				"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name,
				targetNode(pod))
		} else {
			d.Events.Eventf(set, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on "+
				"node %s, will try to delete it", pod.Namespace, pod.Name, targetNode(pod))
		}
	}
	deleted, deleteErr := loop.InBatches(ctx, len(a.Delete), still, func(ctx context.Context, i int) error {
		err := loop.DeletePod(ctx, d.Context, set, a.Delete[i])
		if err != nil {
			d.expect.Deleted(key, string(a.Delete[i].UID))
		}
		return err
	})
	for _, pod := range a.Delete[deleted:] {
		d.expect.Deleted(key, string(pod.UID))
	}
	if a.RequeueAfter > 0 {
		d.AddAfter(key, a.RequeueAfter)
	}
	return errors.Join(err, deleteErr)
}

func (d *controller) writeStatus(
	ctx context.Context,
	set *appsv1.DaemonSet,
	before appsv1.DaemonSetStatus,
	at Placements,
	hash string,
) error {
	now := d.Now()
	want := Status(set, at, hash, now)
	if again := loop.UntilAvailable(d.pods.Of(set.UID), time.Duration(set.Spec.MinReadySeconds)*time.Second,
		now); again > 0 {
		d.AddAfter(set.Namespace+"/"+set.Name, again)
	}
	if apiequality.Semantic.DeepEqual(before, want) {
		return nil
	}
	updated := set.DeepCopy()
	updated.Status = want
	if _, err := d.Client.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

func uids(pods []*corev1.Pod) []string {
	out := make([]string, len(pods))
	for i, pod := range pods {
		out[i] = string(pod.UID)
	}
	return out
}
