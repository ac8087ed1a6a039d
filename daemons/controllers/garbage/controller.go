// Package garbage deletes objects whose owners are gone, and carries out foreground and orphaning deletions. It watches
// the metadata of every kind that can be deleted, including kinds that are added later.
package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

type controller struct {
	loop.Context
	loop.Loop // keys are UIDs
	graph     *graph
	interner  *metadataInterner
	absences  absences
	failures  *prometheus.CounterVec

	mu            sync.Mutex
	watched       map[schema.GroupVersionResource]*watchedKind
	byKind        map[schema.GroupKind]schema.GroupVersionResource
	isNamespaced  map[schema.GroupKind]bool               // whether the kind is namespaced
	unknownOwners map[schema.GroupKind]map[types.UID]bool // objects with owners of an unknown kind

	isComplete atomic.Bool // set once all initially listed objects are in the graph

	discoverNow chan struct{} // receives a value when kinds may have been added or removed
}

// watchedKind is a kind whose objects are in the graph.
type watchedKind struct {
	isListed cache.InformerSynced // reports whether all initial objects are in the graph
	stop     func()
}

// discoverInterval is the interval between discoveries of new and removed kinds. Changed definitions also trigger a
// discovery, after discoverDelay, so that several changes cause one discovery.
const (
	discoverInterval = 30 * time.Second
	discoverDelay    = 300 * time.Millisecond
)

// workers is upstream's default. The more deletions run at once, the more of their writes the store can sync to disk
// together.
const workers = 20

// crdResource is the resource whose objects add and remove kinds.
var crdResource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	g := &controller{
		Context:       c,
		graph:         newGraph(),
		interner:      newMetadataInterner(),
		absences:      newAbsences(),
		watched:       map[schema.GroupVersionResource]*watchedKind{},
		byKind:        map[schema.GroupKind]schema.GroupVersionResource{},
		isNamespaced:  map[schema.GroupKind]bool{},
		unknownOwners: map[schema.GroupKind]map[types.UID]bool{},
		discoverNow:   make(chan struct{}, 1),
	}
	g.failures = c.Counter("garbagecollector_controller_resources_sync_error_total",
		"Looks at the kinds that there are that failed.")
	g.Loop = loop.Loop{Name: "garbage", QueueMetricName: "garbage_collector_attempt_to_delete", Context: c,
		Workers: workers,
		Sync:    func(ctx context.Context, uid string) error { return g.sync(ctx, types.UID(uid)) }}
	return g
}

// ignoredKinds holds kinds that have no owners or dependents and change all the time.
var ignoredKinds = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
}

func (g *controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		tick := g.NewTicker(discoverInterval)
		defer tick.Stop()
		for {
			g.discoverKinds(ctx, &wg)
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
			case <-g.discoverNow:
				select {
				case <-ctx.Done():
					return
				case <-g.After(discoverDelay):
				}
			}
		}
	})
	// Collect nothing from an incomplete graph: wait for the first complete listing. Owners of kinds that are added
	// later are looked up in the API in any case.
	if !cache.WaitForCacheSync(ctx.Done(), g.isSynced) {
		return fmt.Errorf("controller garbage: %w before its caches were filled", ctx.Err())
	}
	// Only now can missing owners be determined: an owner may have been listed after its dependents.
	g.isComplete.Store(true)
	for _, uid := range g.graph.unownedObjects() {
		g.Queue().Add(string(uid))
	}
	return g.Loop.Run(ctx)
}

func (g *controller) isSynced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.watched {
		if !w.isListed() {
			return false
		}
	}
	return len(g.watched) > 0
}

// discoverKinds watches the kinds that are served now. A failed discovery is repeated with the next one.
func (g *controller) discoverKinds(ctx context.Context, wg *sync.WaitGroup) {
	if err := g.discover(ctx, wg); err != nil && ctx.Err() == nil {
		g.failures.WithLabelValues().Inc()
		g.Context.Log.Info("will try again", "controller", "garbage", "reason", err)
	}
}

// discover starts watching new kinds and stops watching removed ones.
func (g *controller) discover(ctx context.Context, wg *sync.WaitGroup) error {
	lists, err := g.Client.Discovery().ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return fmt.Errorf("discover kinds: %w", err)
	}
	wanted := map[schema.GroupVersionResource]bool{}
	var failed error
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, list := range discovery.WithVerbs(lists, "list", "watch", "delete") {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, r := range list.APIResources {
			resource := gv.WithResource(r.Name)
			if ignoredKinds[resource.GroupResource()] {
				continue
			}
			wanted[resource] = true
			kind := gv.WithKind(r.Kind).GroupKind()
			g.byKind[kind], g.isNamespaced[kind] = resource, r.Namespaced
			for uid := range g.unknownOwners[kind] {
				g.Queue().Add(string(uid))
			}
			delete(g.unknownOwners, kind)
			if g.watched[resource] == nil {
				failed = errors.Join(failed, g.watch(ctx, resource, r.Kind, wg))
			}
		}
	}
	if err != nil {
		return errors.Join(err, failed) // a group that did not answer may still exist: stop no watch
	}
	for resource, w := range g.watched {
		if !wanted[resource] {
			w.stop()
			delete(g.watched, resource)
			for _, o := range g.graph.removeResource(resource) {
				g.enqueueOwners(o)
			}
		}
	}
	for kind, resource := range g.byKind {
		if !wanted[resource] {
			delete(g.byKind, kind)
			delete(g.isNamespaced, kind)
		}
	}
	return failed
}

// watch adds the objects of a kind to the graph. It uses the shared cache if other controllers have one of that kind,
// else its own watch of the metadata.
func (g *controller) watch(
	ctx context.Context,
	resource schema.GroupVersionResource,
	kind string,
	wg *sync.WaitGroup,
) error {
	of := &served{resource, kind}
	if IsShared(resource) {
		informer, err := g.Informers.ForResource(resource)
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		follows, err := g.watchInformer(informer, of)
		if err != nil {
			return err
		}
		g.Informers.StartWithContext(ctx) // in case no other controller starts this informer
		g.watched[resource] = &watchedKind{follows.HasSynced, func() { _ = informer.RemoveEventHandler(follows) }}
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	informer := informers.Metadata(g.Metadata, resource, nil)
	_ = informer.SetTransform(func(obj any) (any, error) {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			return g.interner.intern(m), nil
		}
		return obj, nil
	})
	follows, err := g.watchInformer(informer, of)
	if err != nil {
		stop()
		return err
	}
	g.watched[resource] = &watchedKind{follows.HasSynced, stop}
	wg.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// watchInformer adds the objects of an informer to the graph.
func (g *controller) watchInformer(
	informer cache.SharedIndexInformer,
	of *served,
) (cache.ResourceEventHandlerRegistration, error) {
	follows, err := loop.Follow(informer, func(old, obj any) { g.objectChanged(of, metaOf(old), metaOf(obj)) })
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", of.resource, err)
	}
	return follows, nil
}

// metaOf returns the metadata of an object in a cache, or nil for a nil object. It returns a pointer into the object,
// not a copy.
func metaOf(obj any) meta {
	switch o := obj.(type) {
	case *minimalMetadata:
		return o
	case metav1.ObjectMetaAccessor:
		if m, ok := o.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return m
		}
	}
	return nil
}

// objectChanged updates the graph from an event of a watch. updated is nil for a deleted object.
func (g *controller) objectChanged(of *served, old, updated meta) {
	if of.resource.GroupResource() == crdResource {
		select {
		case g.discoverNow <- struct{}{}:
		default: // a discovery is already due
		}
	}
	if old != nil &&
		// while the watch was interrupted, the object may have been replaced by another of the same name
		(updated == nil || updated.GetUID() != old.GetUID()) {
		g.removeObject(old.GetUID())
	}
	if updated != nil {
		g.recordObject(object{of, updated})
	}
}

// removeObject removes an object from the graph and queues its dependents.
func (g *controller) removeObject(uid types.UID) {
	before, ok := g.graph.remove(uid)
	for _, d := range g.graph.dependentsOf(uid) {
		g.Queue().Add(string(d.GetUID()))
	}
	if ok {
		g.enqueueOwners(before) // a foreground deletion may have waited for it
	}
}

// recordObject records the present state of an object and queues it if there is something to do.
func (g *controller) recordObject(o object) {
	before, ok := g.graph.put(o)
	switch {
	case o.isDeleting():
		g.Queue().Add(string(o.GetUID()))
		g.enqueueOwners(o)
	case !ok && len(o.GetOwnerReferences()) > 0,
		ok && !slices.EqualFunc(before.GetOwnerReferences(), o.GetOwnerReferences(), sameOwner):
		if g.isComplete.Load() && !g.graph.isOwned(o) {
			g.Queue().Add(string(o.GetUID()))
		}
		if ok {
			g.enqueueOwners(before)
		}
	}
}

func (g *controller) enqueueOwners(o object) {
	for _, ref := range o.GetOwnerReferences() {
		if owner, ok := g.graph.get(ref.UID); ok && owner.isDeleting() {
			g.Queue().Add(string(ref.UID))
		}
	}
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID &&
		(a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}
