// Package informers provides shared caches of the kinds that the daemons watch. It replaces client-go's package of the
// same name. That package is generated for every kind and version with type parameters, and each package that uses its
// factory compiles two thousand functions.
package informers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"clusterctl/kube/kubernetes"
)

// Factory creates informers. All users of a factory share one informer of each kind, and so one watch and one cache.
// Its methods are safe for concurrent use.
type Factory struct {
	client       kubernetes.Interface
	namespace    string
	tweakOptions func(*metav1.ListOptions)
	transform    cache.TransformFunc

	running sync.WaitGroup

	mu        sync.Mutex
	informers map[reflect.Type]cache.SharedIndexInformer
	started   map[reflect.Type]bool
	closed    bool
}

// Option configures a factory.
type Option func(*Factory)

// WithNamespace limits the factory's informers to one namespace.
func WithNamespace(namespace string) Option { return func(f *Factory) { f.namespace = namespace } }

// WithTweakListOptions sets a function that changes the options of every list and watch, for example to set a selector.
func WithTweakListOptions(narrow func(*metav1.ListOptions)) Option {
	return func(f *Factory) { f.tweakOptions = narrow }
}

// WithTransform sets a function that changes every object before it enters a cache.
func WithTransform(transform cache.TransformFunc) Option {
	return func(f *Factory) { f.transform = transform }
}

// New returns a factory of informers that use client. It starts nothing.
func New(client kubernetes.Interface, options ...Option) *Factory {
	f := &Factory{
		client: client, tweakOptions: func(*metav1.ListOptions) {},
		informers: map[reflect.Type]cache.SharedIndexInformer{}, started: map[reflect.Type]bool{},
	}
	for _, option := range options {
		option(f)
	}
	return f
}

// StartWithContext starts the informers that were requested and do not run yet. They run until ctx ends. It does not
// wait for them.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for of, informer := range f.informers {
		if !f.started[of] {
			f.started[of] = true
			f.running.Go(func() { informer.RunWithContext(ctx) })
		}
	}
}

// WaitForCacheSync waits until the caches of all started informers are filled, or until stop is closed. It returns, by
// the type of the objects, whether each cache is filled.
func (f *Factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	f.mu.Lock()
	running := maps.Clone(f.informers)
	maps.DeleteFunc(running, func(of reflect.Type, _ cache.SharedIndexInformer) bool { return !f.started[of] })
	f.mu.Unlock()
	filled := map[reflect.Type]bool{}
	for of, informer := range running {
		filled[of] = cache.WaitForCacheSync(stop, informer.HasSynced)
	}
	return filled
}

// Shutdown waits until all informers have ended. They end with the contexts that they were started with. No informer
// can be started afterwards.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
}

// ForResource returns the informer of a resource.
func (f *Factory) ForResource(resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	for _, k := range kinds() {
		if k.version.WithResource(k.resource) == resource {
			return f.informer(k), nil
		}
	}
	return nil, fmt.Errorf("no informer for %s", resource)
}

// informer returns the factory's informer of a kind.
func (f *Factory) informer(k kind) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := reflect.TypeOf(k.object)
	informer, ok := f.informers[of]
	if !ok {
		informer = newInformer(k.newSource(f.client, f.namespace), f.client, k.object, f.tweakOptions, ByNamespace)
		if f.transform != nil {
			_ = informer.SetTransform(f.transform) // it fails only for running informers
		}
		f.informers[of] = informer
	}
	return informer
}

// kind holds what is needed to watch a kind.
type kind struct {
	version   schema.GroupVersion
	resource  string
	object    runtime.Object // an empty object
	newSource func(client kubernetes.Interface, namespace string) source
}

// ByNamespace indexes objects by their namespaces, as listers need it.
var ByNamespace = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}

// Metadata returns a new informer of the metadata of a resource in all namespaces.
func Metadata(
	client metadata.Interface, resource schema.GroupVersionResource, indexers cache.Indexers,
) cache.SharedIndexInformer {
	from := typedSource(client.Resource(resource))
	return newInformer(from, client, &metav1.PartialObjectMetadata{}, func(*metav1.ListOptions) {}, indexers)
}

// newInformer returns an informer for a source. client indicates whether watches can start with a list.
func newInformer(
	from source, client any, object runtime.Object, narrow func(*metav1.ListOptions), indexers cache.Indexers,
) cache.SharedIndexInformer {
	reads := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return from.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return from.watch(ctx, o)
		},
	}
	own := cache.Indexers{} // users may add indexers
	maps.Copy(own, indexers)
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(reads, client), object,
		cache.SharedIndexInformerOptions{Indexers: own})
}

// source lists and watches the objects of a kind.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// typedSource returns a source that uses a typed client.
func typedSource[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) source {
	return source{watch: client.Watch, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, o)
	}}
}

// TypedInformer is the informer of one kind with a lister for its cache. A factory runs the informer only if one of the
// methods was called.
type TypedInformer[L any] struct {
	factory *Factory
	kind    kind
	lister  func(cache.Indexer) L
}

func newTypedInformer[L any](f *Factory, k kind, lister func(cache.Indexer) L) TypedInformer[L] {
	return TypedInformer[L]{f, k, lister}
}

// Informer returns the informer, which is shared by all users of the factory.
func (o TypedInformer[L]) Informer() cache.SharedIndexInformer { return o.factory.informer(o.kind) }

// Lister returns a lister of the informer's cache.
func (o TypedInformer[L]) Lister() L { return o.lister(o.Informer().GetIndexer()) }
