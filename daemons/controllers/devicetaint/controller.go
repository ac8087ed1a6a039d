// Package devicetaint evicts pods that use devices with a NoExecute taint which their claims do not tolerate, at once
// or when the toleration expires. Taints come from drivers, in ResourceSlices, and from DeviceTaintRules. The scheduler
// ensures that no pod gets such a device.
package devicetaint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// evictionsPerSecond is the maximum number of pods evicted for device taints per second.
const evictionsPerSecond = 10

type controller struct {
	loop.Context
	loop.Loop
	pods    corelisters.PodLister
	claims  cache.Indexer
	slices  cache.Indexer
	rules   resourcelisters.DeviceTaintRuleLister
	limiter *rate.Limiter

	reports loop.Loop // names of rules whose status may need an update
	evicted evictions
	deleted *prometheus.CounterVec   // pods deleted
	delay   *prometheus.HistogramVec // seconds from a pod's deadline to its deletion
}

// byPool indexes claims by the pools of their devices, and slices by their pool.
const byPool = "pool"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	claims, slicesOf := informers.ResourceClaims(c.Informers).
		Informer(),
		informers.ResourceSlices(c.Informers).
			Informer()
	pods, rules := informers.Pods(c.Informers), informers.DeviceTaintRules(c.Informers)
	t := &controller{
		Context: c,
		pods:    pods.Lister(),
		claims:  claims.GetIndexer(),
		slices:  slicesOf.GetIndexer(),
		rules:   rules.Lister(),
		limiter: rate.NewLimiter(evictionsPerSecond, evictionsPerSecond),
	}
	t.deleted = c.Counter("device_taint_eviction_controller_pod_deletions_total",
		"Pods that were deleted for a taint of a device.")
	t.delay = c.Histogram("device_taint_eviction_controller_pod_deletion_duration_seconds",
		"How long after it had to go a pod was deleted for a taint of a device.", loop.DeletionBuckets)
	t.deleted.WithLabelValues()
	_ = claims.AddIndexers(cache.Indexers{byPool: poolsOfClaim})
	_ = slicesOf.AddIndexers(cache.Indexers{byPool: poolOfSlice})
	t.Loop = loop.Loop{
		Name:            "device-taint-eviction",
		QueueMetricName: "device_taint_eviction",
		Context:         c,
		Sync:            t.sync,
		Synced: []cache.InformerSynced{
			claims.HasSynced, slicesOf.HasSynced, pods.Informer().HasSynced, rules.Informer().HasSynced},
	}
	t.reports = loop.Loop{Name: "device-taint-rule-status", Context: c, Workers: 1, Sync: t.report, Synced: t.Synced}
	c.OnChange(claims, func(_, obj any) {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok && claim.Status.Allocation != nil &&
			len(claim.Status.ReservedFor) > 0 {
			t.Add(claim)
		}
	})
	c.OnChange(slicesOf, func(_, obj any) {
		if s, ok := obj.(*resourcev1.ResourceSlice); ok {
			t.enqueueClaims(s.Spec.Driver + "/" + s.Spec.Pool.Name)
		}
	})
	c.OnChange(rules.Informer(), func(old, obj any) {
		if r, ok := obj.(*resourcev1.DeviceTaintRule); ok {
			t.reports.Queue().Add(r.Name)
		} else if r, ok := old.(*resourcev1.DeviceTaintRule); ok {
			t.evicted.delete(r.UID)
		}
		if r, ok := obj.(*resourcev1.DeviceTaintRule); ok &&
			r.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
			for _, claim := range t.claims.List() {
				t.Add(claim)
			}
		}
	})
	return t
}

// Run implements loop.Controller.
func (t *controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.Loop.Run(ctx) })
	g.Go(func() error { return t.reports.Run(ctx) })
	return g.Wait()
}

func poolsOfClaim(obj any) ([]string, error) {
	var out []string
	if claim, ok := obj.(*resourcev1.ResourceClaim); ok && claim.Status.Allocation != nil {
		for _, r := range claim.Status.Allocation.Devices.Results {
			out = append(out, r.Driver+"/"+r.Pool)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func poolOfSlice(obj any) ([]string, error) {
	if s, ok := obj.(*resourcev1.ResourceSlice); ok {
		return []string{s.Spec.Driver + "/" + s.Spec.Pool.Name}, nil
	}
	return nil, nil
}

// enqueueClaims queues the claims that have devices from a pool.
func (t *controller) enqueueClaims(pool string) {
	if list, err := t.claims.ByIndex(byPool, pool); err == nil {
		for _, claim := range list {
			t.Add(claim)
		}
	}
}

func (t *controller) sync(ctx context.Context, key string) error {
	obj, exists, err := t.claims.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	rules, err := t.rules.List(labels.Everything())
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(slices.Clone(rules), func(r *resourcev1.DeviceTaintRule) bool {
		return r.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute
	})
	for _, r := range rules {
		if isAffected(r, claim) {
			t.reports.Queue().Add(r.Name)
		}
	}
	at, evict := Deadline(claim, t.devicesOf, rules)
	if !evict {
		return nil
	}
	if wait := at.Sub(t.Now()); wait > 0 {
		t.AddAfter(key, wait)
		return nil
	}
	for _, pod := range t.usedBy(claim) {
		if err := t.limiter.Wait(ctx); err != nil {
			return err
		}
		if err := t.evict(ctx, pod); err != nil {
			return err
		}
		t.deleted.WithLabelValues().Inc()
		t.delay.WithLabelValues().Observe(t.Now().Sub(at).Seconds())
		for _, r := range rules {
			if isAffected(r, claim) {
				t.evicted.add(r.UID)
				t.reports.Queue().Add(r.Name)
			}
		}
	}
	return nil
}

// devicesOf returns the devices of a pool's newest generation.
func (t *controller) devicesOf(driver, pool string) []*resourcev1.Device {
	list, err := t.slices.ByIndex(byPool, driver+"/"+pool)
	if err != nil {
		return nil
	}
	var newest int64
	var out []*resourcev1.Device
	for _, obj := range list {
		s, ok := obj.(*resourcev1.ResourceSlice)
		if !ok || s.Spec.Pool.Generation < newest {
			continue
		}
		if s.Spec.Pool.Generation > newest {
			newest, out = s.Spec.Pool.Generation, nil
		}
		for i := range s.Spec.Devices {
			out = append(out, &s.Spec.Devices[i])
		}
	}
	return out
}

func (t *controller) evict(ctx context.Context, pod *corev1.Pod) error {
	marked, err := loop.PatchPodStatus(ctx, t.Client, pod, map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByDeviceTaintManager",
		Message:            "Device Taint manager: deleting due to NoExecute taint",
		LastTransitionTime: metav1.NewTime(t.Now().Truncate(time.Second)),
		ObservedGeneration: pod.Generation,
	}}})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("mark pod %s/%s for eviction: %w", pod.Namespace, pod.Name, err)
	}
	err = t.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, loop.IfUnchanged(marked))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	t.Events.Eventf(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	return nil
}
