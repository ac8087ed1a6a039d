package gitops

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"clusterctl/daemons/config/gitsource"
)

var (
	// sources is the resource of GitSources.
	sources = schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// Recorder records events about objects. record.EventRecorder implements it.
type Recorder interface {
	Event(object runtime.Object, eventType, reason, message string)
}

// Config holds what a controller needs.
type Config struct {
	// Client reads GitSources and their namespaces, and writes their status, as the controller itself.
	Client  dynamic.Interface
	Cluster Cluster
	Fetcher Fetcher
	// Decrypter may be nil, if no source has encrypted files.
	Decrypter Decrypter
	Renderer  Renderer
	Recorder  Recorder
	Sender    Sender // of notifications; nil sends none
	Log       *slog.Logger
	Clock     clock.WithTicker // nil means the real clock
	Workers   int              // sources that are reconciled at the same time; 0 means DefaultWorkers
	Observe   Observer         // nil means none
}

// DefaultWorkers is the number of sources that are reconciled at the same time.
const DefaultWorkers = 4

// Observer receives measurements.
type Observer interface {
	// Reconciled is called after each round. outcome is "ready", "progressing" or the reason of a failure.
	Reconciled(key Key, outcome string, took time.Duration)
}

// Controller reconciles GitSources.
type Controller struct {
	Config
	informer cache.SharedIndexInformer
	queue    workqueue.TypedDelayingInterface[Key]
	notes    *notes

	// moveMu keeps a source from recording an object in its inventory while another decides whether to delete it.
	moveMu sync.Mutex

	mu       sync.Mutex // guards the maps and the fields of entries that are marked so
	entries  map[Key]*entry
	pruning  map[Key]bool   // sources with objects that are no longer rendered and still exist
	occupied map[string]int // workers of the namespaces of tenants
	recorded int            // objects in the records of all entries
}

// entry is what the controller remembers of a source. Only the worker of the source uses it, except for the fields that
// mu guards.
type entry struct {
	history
	work      *work
	record    *record // of the last successful round; nil means none; written under Controller.mu
	digest    string  // digest of the objects that were applied last; "" after a restart
	unhealthy string  // digest of the objects whose health check has failed
	message   string  // message of the last event about a failure
	attempted string  // revision that was fetched last; "" if that failed
	announced Notification

	status    *gitsource.Status // last written status, which the cache may not have yet; guarded by Controller.mu
	statusUID string            // guarded by Controller.mu

	hook        *hook     // of the source's receiver; nil means none; guarded by Controller.mu
	requested   int64     // number of requests by webhooks; guarded by Controller.mu
	requestedAt time.Time // when the last one is carried out; guarded by Controller.mu
}

// New returns a controller. It starts nothing.
func New(cfg Config) *Controller {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers
	}
	c := &Controller{Config: cfg, entries: map[Key]*entry{}, pruning: map[Key]bool{}, occupied: map[string]int{}}
	c.notes = newNotes(cfg.Clock)
	client := cfg.Client.Resource(sources)
	c.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: client.Watch,
	}, &unstructured.Unstructured{}, 0, cache.Indexers{dependencyIndex: dependencyKeys})
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Key]{Clock: cfg.Clock})
	return c
}

// HasSynced reports whether all sources have been read.
func (c *Controller) HasSynced() bool { return c.informer.HasSynced() }

// Run reconciles sources until ctx ends. Until the API serves GitSources it waits.
func (c *Controller) Run(ctx context.Context) error {
	changed := func(obj any) {
		if o, ok := obj.(*unstructured.Unstructured); ok {
			c.enqueue(o)
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			changed(obj)
		},
	})
	if err != nil {
		return fmt.Errorf("watch GitSources: %w", err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		return nil
	}
	for range c.Workers {
		all.Go(func() {
			for {
				key, stopped := c.queue.Get()
				if stopped {
					return
				}
				if !c.occupy(key) {
					c.queue.AddAfter(key, recheckPause)
					c.queue.Done(key)
					continue
				}
				if after := c.sync(ctx, key); after > 0 {
					c.queue.AddAfter(key, after)
				}
				c.vacate(key)
				c.queue.Done(key)
			}
		})
	}
	for range notifyWorkers {
		all.Go(func() { c.sendNotes(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.notes.queue.ShutDown()
	return nil
}

// occupy reserves a worker for a source. It returns false if the sources of a tenant's namespace occupy half of the
// workers, or those of all tenants all but one: their servers may answer slowly.
func (c *Controller) occupy(key Key) bool {
	if key.Namespace == gitsource.Namespace {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, n := range c.occupied {
		all += n
	}
	if c.occupied[key.Namespace] >= max(c.Workers/2, 1) || all >= max(c.Workers-1, 1) {
		return false
	}
	c.occupied[key.Namespace]++
	return true
}

// vacate ends what occupy began.
func (c *Controller) vacate(key Key) {
	if key.Namespace == gitsource.Namespace {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.occupied[key.Namespace]--; c.occupied[key.Namespace] == 0 {
		delete(c.occupied, key.Namespace)
	}
}

// recheckPause is the pause before sources are reconciled because another source has changed, or because no worker was
// free for them.
const recheckPause = time.Second

// dependencyIndex is the index of sources by the keys of those that they depend on.
const dependencyIndex = "dependency"

func dependencyKeys(obj any) (keys []string, err error) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	s, err := SourceOf(o)
	if err != nil {
		return nil, nil // reported when it is reconciled
	}
	for _, k := range s.dependencies() {
		keys = append(keys, k.String())
	}
	return keys, nil
}

// enqueue queues a changed source, and the sources that may wait for it.
func (c *Controller) enqueue(o *unstructured.Unstructured) {
	key := Key{Namespace: o.GetNamespace(), Name: o.GetName()}
	c.mu.Lock()
	if pruning, _, _ := unstructured.NestedSlice(o.Object, "status", "pruning"); len(pruning) > 0 {
		c.pruning[key] = true // written by a former process
	}
	c.mu.Unlock()
	c.queue.Add(key)
	c.wake(key)
}

// wake queues the sources that may wait for one that has changed: those that depend on it, and those that may delete
// objects once it has rendered a revision.
func (c *Controller) wake(key Key) {
	dependents, err := c.informer.GetIndexer().IndexKeys(dependencyIndex, key.String())
	if err != nil { // the index exists
		return
	}
	for _, name := range dependents {
		namespace, name, _ := strings.Cut(name, "/")
		c.queue.Add(Key{Namespace: namespace, Name: name})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.pruning {
		if other != key {
			c.entryOf(other).recheck = true
			c.queue.AddAfter(other, recheckPause)
		}
	}
}

// entryOf returns the entry of a source. The caller holds mu.
func (c *Controller) entryOf(key Key) *entry {
	e := c.entries[key]
	if e == nil {
		e = &entry{}
		c.entries[key] = e
	}
	return e
}

// list returns all sources, with the status as it was written last.
func (c *Controller) list() (all []*Source) {
	for _, obj := range c.informer.GetStore().List() {
		if s := c.decode(obj); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// find returns a source, or nil.
func (c *Controller) find(key Key) *Source {
	obj, ok, err := c.informer.GetStore().GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	return c.decode(obj)
}

// others returns all sources except s.
func (c *Controller) others(s *Source) []*Source {
	return slices.DeleteFunc(c.list(), func(o *Source) bool { return o.Key() == s.Key() })
}

// decode returns the source of a cached object, or nil if it cannot be decoded. The API server accepts only objects
// that can be decoded.
func (c *Controller) decode(obj any) *Source {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s, err := SourceOf(o)
	if err != nil {
		c.Log.Warn("a source cannot be decoded", "source", o.GetNamespace()+"/"+o.GetName(), "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[s.Key()]; e != nil {
		s.Requested = e.requested
		if e.status != nil && e.statusUID == string(s.UID) {
			s.Status = *e.status
		}
	}
	return s
}

// event records an event about a source, and logs it.
func (c *Controller) event(s *Source, eventType, reason, message string) {
	level := slog.LevelInfo
	if eventType == corev1.EventTypeWarning {
		level = slog.LevelWarn
	}
	c.Log.Log(context.Background(), level, shorten(message), "source", s.Key(), "reason", reason)
	c.Recorder.Event(&corev1.ObjectReference{APIVersion: gitsource.APIVersion, Kind: gitsource.Kind,
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion}, eventType, reason,
		shorten(message))
}
