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
	words     *words
	absent    absences
	failures  *prometheus.CounterVec

	mu      sync.Mutex
	watched map[schema.GroupVersionResource]*watched
	byKind  map[schema.GroupKind]schema.GroupVersionResource
	scoped  map[schema.GroupKind]bool               // whether the kind is namespaced
	missed  map[schema.GroupKind]map[types.UID]bool // objects with owners of an unknown kind

	complete atomic.Bool // set once all initially listed objects are in the graph

	look chan struct{} // receives a value when kinds may have been added or removed
}

// watched is a kind whose objects are in the graph.
type watched struct {
	listed cache.InformerSynced // reports whether all initial objects are in the graph
	stop   func()
}

// discoverEvery is the interval between looks for new and removed kinds. Changed definitions trigger a look too, after
// discoverAfter, so that several changes cause one look.
const (
	discoverEvery = 30 * time.Second
	discoverAfter = 300 * time.Millisecond
)

// workers is upstream's default. The more deletions run at once, the more of their writes the store can sync to disk
// together.
const workers = 20

// definitions is the resource whose objects add and remove kinds.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	g := &controller{
		Context: c,
		graph:   newGraph(),
		words:   newWords(),
		absent:  newAbsences(),
		watched: map[schema.GroupVersionResource]*watched{},
		byKind:  map[schema.GroupKind]schema.GroupVersionResource{},
		scoped:  map[schema.GroupKind]bool{},
		missed:  map[schema.GroupKind]map[types.UID]bool{},
		look:    make(chan struct{}, 1),
	}
	g.failures = c.Counter(
		"garbagecollector_controller_resources_sync_error_total",
		"Looks at the kinds that there are that failed.",
	)
	g.Loop = loop.Loop{Name: "garbage", Counted: "garbage_collector_attempt_to_delete", Context: c, Workers: workers,
		Sync: func(ctx context.Context, uid string) error { return g.sync(ctx, types.UID(uid)) }}
	return g
}

// ignored holds kinds that have no owners or dependents and change all the time.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
}

func (g *controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		tick := g.NewTicker(discoverEvery)
		defer tick.Stop()
		for {
			g.lookAtKinds(ctx, &wg)
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
			case <-g.look:
				select {
				case <-ctx.Done():
					return
				case <-g.After(discoverAfter):
				}
			}
		}
	})
	// Collect nothing from an incomplete graph: wait for the first complete listing. Owners of kinds that are added
	// later are looked up in the API in any case.
	if !cache.WaitForCacheSync(ctx.Done(), g.synced) {
		return fmt.Errorf("controller garbage: %w before its caches were filled", ctx.Err())
	}
	// Only now can missing owners be determined: an owner may have been listed after its dependents.
	g.complete.Store(true)
	for _, uid := range g.graph.unowned() {
		g.Queue().Add(string(uid))
	}
	return g.Loop.Run(ctx)
}

func (g *controller) synced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.watched {
		if !w.listed() {
			return false
		}
	}
	return len(g.watched) > 0
}

// lookAtKinds watches the kinds that are served now. Failures are repeated with the next look.
func (g *controller) lookAtKinds(ctx context.Context, wg *sync.WaitGroup) {
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
			if ignored[resource.GroupResource()] {
				continue
			}
			wanted[resource] = true
			kind := gv.WithKind(r.Kind).GroupKind()
			g.byKind[kind], g.scoped[kind] = resource, r.Namespaced
			for uid := range g.missed[kind] {
				g.Queue().Add(string(uid))
			}
			delete(g.missed, kind)
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
			for _, o := range g.graph.forget(resource) {
				g.wakeOwners(o)
			}
		}
	}
	for kind, resource := range g.byKind {
		if !wanted[resource] {
			delete(g.byKind, kind)
			delete(g.scoped, kind)
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
	if Held(resource) {
		informer, err := g.Informers.ForResource(resource)
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		follows, err := g.follow(informer, of)
		if err != nil {
			return err
		}
		g.Informers.StartWithContext(ctx) // in case no other controller starts this informer
		g.watched[resource] = &watched{follows.HasSynced, func() { _ = informer.RemoveEventHandler(follows) }}
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	informer := informers.Metadata(g.Metadata, resource, nil)
	_ = informer.SetTransform(func(obj any) (any, error) {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			return g.words.bare(m), nil
		}
		return obj, nil
	})
	follows, err := g.follow(informer, of)
	if err != nil {
		stop()
		return err
	}
	g.watched[resource] = &watched{follows.HasSynced, stop}
	wg.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// follow adds the objects of an informer to the graph.
func (g *controller) follow(
	informer cache.SharedIndexInformer,
	of *served,
) (cache.ResourceEventHandlerRegistration, error) {
	follows, err := loop.Follow(informer, func(old, obj any) { g.changed(of, metaOf(old), metaOf(obj)) })
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", of.resource, err)
	}
	return follows, nil
}

// metaOf returns the metadata of an object in a cache, or nil for a nil object. It returns a pointer into the object,
// not a copy.
func metaOf(obj any) meta {
	switch o := obj.(type) {
	case *bare:
		return o
	case metav1.ObjectMetaAccessor:
		if m, ok := o.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return m
		}
	}
	return nil
}

// changed updates the graph from an event of a watch. is is nil for a deleted object.
func (g *controller) changed(of *served, was, is meta) {
	if of.resource.GroupResource() == definitions {
		select {
		case g.look <- struct{}{}:
		default: // a look is already due
		}
	}
	if was != nil &&
		// while the watch was interrupted, the object may have been replaced by another of the same name
		(is == nil || is.GetUID() != was.GetUID()) {
		g.gone(was.GetUID())
	}
	if is != nil {
		g.known(object{of, is})
	}
}

// gone removes an object from the graph and queues its dependents.
func (g *controller) gone(uid types.UID) {
	was, known := g.graph.remove(uid)
	for _, d := range g.graph.dependentsOf(uid) {
		g.Queue().Add(string(d.GetUID()))
	}
	if known {
		g.wakeOwners(was) // a foreground deletion may have waited for it
	}
}

// known records the present state of an object and queues it if there is something to do.
func (g *controller) known(o object) {
	was, known := g.graph.put(o)
	switch {
	case o.deleting():
		g.Queue().Add(string(o.GetUID()))
		g.wakeOwners(o)
	case !known && len(o.GetOwnerReferences()) > 0,
		known && !slices.EqualFunc(was.GetOwnerReferences(), o.GetOwnerReferences(), sameOwner):
		if g.complete.Load() && !g.graph.owned(o) {
			g.Queue().Add(string(o.GetUID()))
		}
		if known {
			g.wakeOwners(was)
		}
	}
}

func (g *controller) wakeOwners(o object) {
	for _, ref := range o.GetOwnerReferences() {
		if owner, known := g.graph.get(ref.UID); known && owner.deleting() {
			g.Queue().Add(string(ref.UID))
		}
	}
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID &&
		(a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}
