// Package disruption maintains the status of PodDisruptionBudgets: how many of their pods are healthy, and how many may
// be evicted. The API server consumes the budget when it serves an eviction.
package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	budgets policylisters.PodDisruptionBudgetLister
	pods    corelisters.PodLister
	scales  scales

	stalePods loop.Loop // keys of pods with the condition DisruptionTarget
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	budgets, pods := informers.PodDisruptionBudgets(c.Informers), informers.Pods(c.Informers)
	d := &controller{Context: c, budgets: budgets.Lister(), pods: pods.Lister()}
	synced := []cache.InformerSynced{budgets.Informer().HasSynced, pods.Informer().HasSynced}
	d.scales, synced = newScales(c, synced, d.ownerChanged)
	d.Loop = loop.Loop{Name: "disruption", Context: c, Sync: d.sync, Synced: synced}
	d.stalePods = loop.Loop{
		Name:            "disruption-stale",
		QueueMetricName: "stale_pod_disruption",
		Context:         c,
		Workers:         1,
		Sync:            d.clearStale,
		Synced:          synced,
	}
	c.On(budgets.Informer(), d.Add)
	c.OnChange(pods.Informer(), d.podChanged)
	return d
}

// Run implements loop.Controller.
func (d *controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Loop.Run(ctx) })
	g.Go(func() error { return d.stalePods.Run(ctx) })
	return g.Wait()
}

// podChanged queues the budgets that count a changed pod.
func (d *controller) podChanged(old, obj any) {
	if pod, ok := obj.(*corev1.Pod); ok && pod != nil && disruptionCondition(pod) != nil {
		d.stalePods.Add(pod)
	}
	if old != nil && obj != nil {
		a, b := old.(*corev1.Pod), obj.(*corev1.Pod)
		readyA, _ := loop.IsReady(a)
		readyB, _ := loop.IsReady(b)
		if readyA == readyB && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
			apiequality.Semantic.DeepEqual(a.Labels,
				b.Labels) && apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) {
			return
		}
	}
	for _, o := range []any{old, obj} {
		if pod, ok := o.(*corev1.Pod); ok && pod != nil {
			woken := d.enqueueBudgets(pod.Namespace,
				func(s labels.Selector) bool { return s.Matches(labels.Set(pod.Labels)) })
			if len(woken) > 1 && o == obj {
				d.Events.Eventf(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
					"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", pod.Namespace, pod.Name,
					woken[0].Name)
			}
		}
	}
}

// ownerChanged queues the budgets of a namespace in which a controller was scaled.
func (d *controller) ownerChanged(namespace string) {
	d.enqueueBudgets(namespace, func(labels.Selector) bool { return true })
}

// enqueueBudgets queues and returns the budgets of a namespace whose selector satisfies concerns.
func (d *controller) enqueueBudgets(
	namespace string,
	concerns func(labels.Selector) bool,
) (woken []*policyv1.PodDisruptionBudget) {
	budgets, err := d.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, b := range budgets {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && concerns(selector) {
			d.Add(b)
			woken = append(woken, b)
		}
	}
	return woken
}

func (d *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	b, err := d.budgets.PodDisruptionBudgets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	want, again, err := d.status(ctx, b)
	if err != nil {
		d.Events.Eventf(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: %v", err)
		want, again = failedStatus(b, err, d.Now()), recheckInterval
	}
	if again > 0 {
		d.AddAfter(key, again+time.Second)
	}
	if apiequality.Semantic.DeepEqual(b.Status, want) {
		return nil
	}
	updated := b.DeepCopy()
	updated.Status = want
	// A conflict means that an eviction consumed the budget in between. Its update counts, and the watch delivers it.
	if _, err := d.Client.PolicyV1().PodDisruptionBudgets(namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of PodDisruptionBudget %s: %w", key, err)
	}
	return nil
}

// recheckInterval is the interval for budgets whose expected number of pods could not be determined, or depends on a
// kind that is not watched.
const recheckInterval = 30 * time.Second

// hasUnwatchedController reports whether a pod's controller is of a kind that is not watched.
func hasUnwatchedController(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && !slices.Contains([]string{"ReplicaSet", "StatefulSet", "ReplicationController"}, ref.Kind)
}

func (d *controller) status(
	ctx context.Context,
	b *policyv1.PodDisruptionBudget,
) (policyv1.PodDisruptionBudgetStatus, time.Duration, error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return policyv1.PodDisruptionBudgetStatus{}, 0, fmt.Errorf("read spec.selector: %w", err)
	}
	// Finished pods are included until they are deleted: it is not known whether their controller has replaced them.
	pods, err := d.pods.Pods(b.Namespace).List(selector)
	if err != nil {
		return policyv1.PodDisruptionBudgetStatus{}, 0, err
	}
	if len(pods) == 0 {
		d.Events.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected := len(pods)
	if b.Spec.MinAvailable == nil && b.Spec.MaxUnavailable == nil {
		expected = 0 // a budget without a limit allows no disruption
	} else if !countsExistingPods(b) {
		var unmanaged []*corev1.Pod
		if expected, unmanaged, err = d.scales.expectedPods(ctx, pods); err != nil {
			return policyv1.PodDisruptionBudgetStatus{}, 0, err
		}
		if len(unmanaged) > 0 {
			d.Events.Eventf(b, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget "+
				"(selector: %v) were found to be unmanaged. "+
				"As a result, the status of the PDB cannot be calculated correctly, which may result in undefined "+
				"behavior. "+
				"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer "+
				"value.", b.Spec.Selector)
		}
	}
	now := d.Now()
	for _, pod := range pods {
		if evicted, ok := b.Status.DisruptedPods[pod.Name]; ok && pod.DeletionTimestamp == nil &&
			!evicted.Add(evictionTimeout).After(now) {
			d.Events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted",
				"Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
		}
	}
	status, again, err := Status(b, pods, expected, now)
	if !countsExistingPods(b) && again == 0 && slices.ContainsFunc(pods, hasUnwatchedController) {
		again = recheckInterval
	}
	return status, again, err
}
