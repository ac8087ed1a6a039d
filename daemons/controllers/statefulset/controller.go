// Package statefulset manages the pods of a StatefulSet. Each pod has a number and claims of its own that outlive it.
// Pods are created, deleted and updated in order. Package loop manages ControllerRevisions, and package binder binds
// claims.
package statefulset

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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

type controller struct {
	loop.Context
	loop.Loop
	sets      appslisters.StatefulSetLister
	claims    corelisters.PersistentVolumeClaimLister
	revisions loop.Revisions
	pods      loop.PodIndex
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	sets, revisions := informers.StatefulSets(c.Informers), informers.ControllerRevisions(c.Informers)
	pods, claims := informers.Pods(c.Informers), informers.PersistentVolumeClaims(c.Informers)
	r := &controller{Context: c, sets: sets.Lister(), claims: claims.Lister(),
		revisions: loop.Revisions{
			Client: c.Client,
			Lister: revisions.Lister(),
			Label:  appsv1.ControllerRevisionHashLabelKey,
		},
		pods: loop.PodsByOwner(pods.Informer())}
	r.Loop = loop.Loop{
		Name:    "statefulset",
		Context: c,
		Sync:    r.sync,
		Synced: []cache.InformerSynced{sets.Informer().HasSynced,
			revisions.Informer().HasSynced, pods.Informer().HasSynced, claims.Informer().HasSynced},
	}
	c.RegisterMetrics(updateCollector{r.sets})
	c.On(sets.Informer(), r.Add)
	c.OnChange(pods.Informer(), r.podChanged)
	return r
}

func (r *controller) podChanged(old, obj any) {
	for _, o := range []any{old, obj} {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		if key := loop.OwnerKey(pod, kind.Kind); key != "" {
			r.Queue().Add(key)
		} else if metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil {
			r.enqueueAdopters(pod)
		}
	}
}

func (r *controller) enqueueAdopters(pod *corev1.Pod) {
	sets, err := r.sets.GetPodStatefulSets(pod)
	if err != nil {
		return // no set matches
	}
	for _, set := range sets {
		if _, ok := ordinalOf(set, pod); ok {
			r.Add(set)
		}
	}
}

func (r *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := r.sets.StatefulSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	set := cached.DeepCopy()
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() {
		return nil // the API server refuses such a set
	}
	pods, err := r.claimPods(ctx, set, selector)
	if err != nil {
		return err
	}
	now := r.Now()
	if set.DeletionTimestamp != nil { // the garbage collector deletes its pods, which are counted until then
		current, update := revision{name: set.Status.CurrentRevision}, revision{name: set.Status.UpdateRevision}
		return r.writeStatus(ctx, cached, Status(set, current, update, pods, now))
	}
	current, update, err := r.recordRevision(ctx, set, pods)
	if err != nil {
		return err
	}
	actErr := r.act(ctx, set, pods, Decide(set, current, update, pods, now))
	if err := r.writeStatus(ctx, cached, Status(set, current, update, pods, now)); err != nil {
		return errors.Join(err, actErr)
	}
	if again := loop.UntilAvailable(pods, time.Duration(set.Spec.MinReadySeconds)*time.Second, now); again > 0 {
		r.AddAfter(key, again)
	}
	return actErr
}

func (r *controller) writeStatus(
	ctx context.Context,
	cached *appsv1.StatefulSet,
	status appsv1.StatefulSetStatus,
) error {
	if apiequality.Semantic.DeepEqual(cached.Status, status) {
		return nil
	}
	set := cached.DeepCopy()
	set.Status = status
	if _, err := r.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, set,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

// nameFilter restricts the orphans of a set: it may adopt only pods that have one of its names.
type nameFilter struct {
	loop.PodIndex
	set *appsv1.StatefulSet
}

func (x nameFilter) Orphans(namespace string) []*corev1.Pod {
	return slices.DeleteFunc(x.PodIndex.Orphans(namespace), func(pod *corev1.Pod) bool {
		_, ok := ordinalOf(x.set, pod)
		return !ok
	})
}

// claimPods returns the set's own pods. It adopts orphans that have the set's labels and one of its names.
func (r *controller) claimPods(
	ctx context.Context,
	set *appsv1.StatefulSet,
	selector labels.Selector,
) ([]*corev1.Pod, error) {
	return loop.ClaimPods(ctx, r.Client, nameFilter{r.pods, set}, set, kind, selector, nil, r.readLive(set))
}

// readLive reads a set from the server.
func (r *controller) readLive(set *appsv1.StatefulSet) func(context.Context) (metav1.Object, error) {
	return func(ctx context.Context) (metav1.Object, error) {
		return r.Client.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}
}

// recordRevision records the set's template. It returns the revision that pods have and the revision that they should
// have.
func (r *controller) recordRevision(
	ctx context.Context,
	set *appsv1.StatefulSet,
	pods []*corev1.Pod,
) (current, update revision, err error) {
	used := map[string]bool{set.Status.CurrentRevision: true, set.Status.UpdateRevision: true}
	for _, pod := range pods {
		used[pod.Labels[appsv1.StatefulSetRevisionLabel]] = true
	}
	newest, all, err := r.revisions.Record(ctx, loop.RevisionOwner{
		Owner: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		Collisions: &set.Status.CollisionCount, Limit: set.Spec.RevisionHistoryLimit,
		IsUsed:   func(c *appsv1.ControllerRevision) bool { return used[c.Name] },
		ReadLive: r.readLive(set),
	})
	if err != nil {
		return current, update, err
	}
	update = revision{newest.Name, &set.Spec.Template}
	if name := set.Status.CurrentRevision; name != "" && name != newest.Name {
		c, err := r.revisions.ByName(ctx, set, all, name)
		if err != nil {
			return current, update, err
		}
		if c != nil {
			template, err := loop.TemplateOf(c)
			return revision{c.Name, template}, update, err
		}
	}
	return update, update, nil
}
