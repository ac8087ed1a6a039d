// Package resourcequota maintains the status of ResourceQuotas: the limits, and what the objects of the namespace use.
// The API server enforces quotas and counts by the same rules.
package resourcequota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds/quota"
)

type controller struct {
	loop.Context
	loop.Loop
	quotas  corelisters.ResourceQuotaLister
	pods    corelisters.PodLister
	classes resourcelisters.DeviceClassLister
	caches  *quotaCaches
}

const (
	// collectDelay is how long changes are collected before a recount, so that a busy namespace is counted a few times
	// a second and not with every change.
	collectDelay = 200 * time.Millisecond
	// recountInterval is the interval between recounts without changes. Over time, pods stop counting without an event:
	// pods that should have ended and whose node is gone.
	recountInterval = 5 * time.Minute
)

// New returns the controller.
func New(c loop.Context) loop.Controller {
	quotas := informers.ResourceQuotas(c.Informers)
	classes := informers.DeviceClasses(c.Informers)
	r := &controller{
		Context: c,
		quotas:  quotas.Lister(),
		pods:    informers.Pods(c.Informers).Lister(),
		classes: classes.Lister(),
	}
	r.caches = newQuotaCaches(c, r.objectChanged, r.enqueueForResource)
	r.Loop = loop.Loop{
		Name:            "resourcequota",
		QueueMetricName: "resourcequota_primary",
		Context:         c,
		Sync:            r.sync,
		Synced:          []cache.InformerSynced{quotas.Informer().HasSynced, classes.Informer().HasSynced},
	}
	// The extended resource of a device class affects the quota that its claims use.
	c.OnChange(classes.Informer(), func(old, obj any) {
		before, _ := old.(*resourcev1.DeviceClass)
		now, _ := obj.(*resourcev1.DeviceClass)
		if before == nil || now == nil ||
			ptr.Deref(before.Spec.ExtendedResourceName, "") != ptr.Deref(now.Spec.ExtendedResourceName, "") {
			r.enqueueForResource(resourcev1.Resource("resourceclaims"))
		}
	})
	for gr, informer := range map[schema.GroupResource]cache.SharedIndexInformer{
		{Resource: "pods"}:                   informers.Pods(c.Informers).Informer(),
		{Resource: "services"}:               informers.Services(c.Informers).Informer(),
		{Resource: "persistentvolumeclaims"}: informers.PersistentVolumeClaims(c.Informers).Informer(),
	} {
		r.caches.addShared(gr, informer)
		r.Loop.Synced = append(r.Loop.Synced, informer.HasSynced)
	}
	c.OnChange(quotas.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.ResourceQuota)
		now, _ := obj.(*corev1.ResourceQuota)
		if before == nil || now == nil || !quota.Same(before.Spec.Hard, now.Spec.Hard) {
			r.caches.triggerCheck()
		}
		if now != nil && (before == nil || !quota.Same(now.Status.Hard, now.Spec.Hard)) {
			r.Add(obj)
		}
	})
	return r
}

func (r *controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	wg.Go(func() { r.caches.run(ctx, r.countedResources) })
	return r.Loop.Run(ctx)
}

// enqueueForResource queues the quotas that count a resource whose objects are now known.
func (r *controller) enqueueForResource(of schema.GroupResource) {
	all, err := r.quotas.List(labels.Everything())
	if err != nil {
		return
	}
	for _, q := range all {
		for name := range q.Spec.Hard {
			if slices.Contains(quota.CountedResources(name), of) {
				r.Add(q)
				break
			}
		}
	}
}

// countedResources returns the resources whose objects quotas count.
func (r *controller) countedResources() map[schema.GroupResource]bool {
	all, err := r.quotas.List(labels.Everything())
	if err != nil {
		return nil
	}
	out := map[schema.GroupResource]bool{}
	for _, q := range all {
		for name := range q.Spec.Hard {
			for _, gr := range quota.CountedResources(name) {
				out[gr] = true
			}
		}
	}
	return out
}

// objectChanged queues the quotas for which an object now uses a different amount.
func (r *controller) objectChanged(of schema.GroupResource, old, obj any) {
	some := obj
	if some == nil {
		some = old
	}
	m, err := meta.Accessor(some)
	if err != nil {
		return
	}
	quotas, err := r.quotas.ResourceQuotas(m.GetNamespace()).List(labels.Everything())
	if err != nil || len(quotas) == 0 {
		return
	}
	now := r.Now()
	for _, q := range quotas {
		// Charge the old state as of the earliest time: at the last count, the pod's termination period may not have
		// passed yet.
		if !quota.Same(r.usageOf(q, of, old, time.Time{}), r.usageOf(q, of, obj, now)) {
			r.AddAfter(q.Namespace+"/"+q.Name, collectDelay)
		}
	}
}

func (r *controller) usageOf(
	q *corev1.ResourceQuota,
	of schema.GroupResource,
	obj any,
	now time.Time,
) corev1.ResourceList {
	if obj == nil {
		return nil
	}
	return quota.Charge(q, of, obj, now, r.lookups())
}

// lookups returns the lookups that are needed to charge a ResourceClaim.
func (r *controller) lookups() quota.Lookups {
	return quota.Lookups{
		Class: func(name string) *resourcev1.DeviceClass {
			class, err := r.classes.Get(name)
			if err != nil {
				return nil
			}
			return class
		},
		Pod: func(namespace, name string) *corev1.Pod {
			pod, err := r.pods.Pods(namespace).Get(name)
			if err != nil {
				return nil
			}
			return pod
		},
		Claims: func(namespace string) (list []*resourcev1.ResourceClaim) {
			objs, _ := r.caches.objectsIn(resourcev1.Resource("resourceclaims"), namespace)
			for _, obj := range objs {
				if c, ok := obj.(*resourcev1.ResourceClaim); ok {
					list = append(list, c)
				}
			}
			return list
		},
	}
}

func (r *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	q, err := r.quotas.ResourceQuotas(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	r.AddAfter(key, recountInterval)
	status := r.status(q)
	if apiequality.Semantic.DeepEqual(q.Status, status) {
		return nil
	}
	updated := q.DeepCopy()
	updated.Status = status
	if _, err := r.Client.CoreV1().ResourceQuotas(namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of ResourceQuota %s: %w", key, err)
	}
	return nil
}

// status computes a quota's status. For a resource that cannot be counted yet it retains the previous value, which at
// first is none: zero would be wrong.
func (r *controller) status(q *corev1.ResourceQuota) corev1.ResourceQuotaStatus {
	status := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	counted := map[schema.GroupResource]bool{}
	for name := range q.Spec.Hard {
		takers := quota.CountedResources(name)
		if len(takers) == 0 {
			continue
		}
		isKnown := true
		for _, gr := range takers {
			if _, done := counted[gr]; !done {
				counted[gr] = r.addUsage(q, gr, status.Used)
			}
			isKnown = isKnown && counted[gr]
		}
		if _, ok := status.Used[name]; !ok && isKnown {
			status.Used[name] = corev1.ResourceList{}[name]
		}
		if !isKnown {
			delete(status.Used, name) // the sum is incomplete
		}
		if before, ok := q.Status.Used[name]; ok && !isKnown {
			status.Used[name] = before
		}
	}
	return status
}

// addUsage adds the usage of one resource's objects to used. It returns false if the objects are not known.
func (r *controller) addUsage(q *corev1.ResourceQuota, of schema.GroupResource, used corev1.ResourceList) bool {
	objs, ok := r.caches.objectsIn(of, q.Namespace)
	if !ok {
		return false
	}
	now, with := r.Now(), r.lookups()
	for _, obj := range objs {
		quota.Add(used, quota.Charge(q, of, obj, now, with))
	}
	return true
}
