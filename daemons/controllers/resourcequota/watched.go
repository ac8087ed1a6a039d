package resourcequota

import (
	"context"
	"log/slog"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
	"clusterctl/kube/kubernetes"
)

// watched holds the objects that quotas count. Pods, services and claims are in shared caches anyway. For any other
// resource, the metadata is watched as long as a quota names it.
type watched struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	log      *slog.Logger
	changed  func(of schema.GroupResource, old, obj any)
	known    func(of schema.GroupResource) // called once all objects of a resource are known
	ticker   func(time.Duration) clock.Ticker

	look chan struct{} // receives a value when the resources to watch may have changed

	mu   sync.Mutex
	open map[schema.GroupResource]*open
}

type open struct {
	informer cache.SharedIndexInformer
	version  schema.GroupVersionResource
	stop     context.CancelFunc // nil if the informer is shared
}

// lookEvery is the interval at which discovery is checked for resources that quotas name.
const lookEvery = 30 * time.Second

func newWatched(
	c loop.Context,
	changed func(schema.GroupResource, any, any),
	known func(schema.GroupResource),
) *watched {
	return &watched{
		client:   c.Client,
		metadata: c.Metadata,
		log:      c.Log,
		changed:  changed,
		known:    known,
		ticker:   c.NewTicker,
		look:     make(chan struct{}, 1),
		open:     map[schema.GroupResource]*open{},
	}
}

// share adds a shared informer that is not started yet.
func (w *watched) share(of schema.GroupResource, informer cache.SharedIndexInformer) {
	w.open[of] = &open{informer: informer}
	w.follow(of, informer)
}

func (w *watched) follow(of schema.GroupResource, informer cache.SharedIndexInformer) {
	loop.OnChange(informer, func(old, obj any) { w.changed(of, old, obj) })
}

// in returns the objects of a namespace. It returns false if they are not known yet.
func (w *watched) in(of schema.GroupResource, namespace string) ([]any, bool) {
	w.mu.Lock()
	o := w.open[of]
	w.mu.Unlock()
	if o == nil || !o.informer.HasSynced() {
		return nil, false
	}
	objs, err := o.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return objs, err == nil
}

// wake triggers a check of the resources to watch.
func (w *watched) wake() {
	select {
	case w.look <- struct{}{}:
	default: // a check is already due
	}
}

// run watches the wanted resources until ctx ends.
func (w *watched) run(ctx context.Context, wanted func() map[schema.GroupResource]bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := w.ticker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		case <-w.look:
		}
		w.settle(ctx, wanted(), &wg)
	}
}

// settle starts watches for resources that are wanted and served, and stops the others.
func (w *watched) settle(ctx context.Context, wanted map[schema.GroupResource]bool, wg *sync.WaitGroup) {
	served, complete := map[schema.GroupResource]schema.GroupVersionResource{}, true
	if w.asks(wanted) {
		served, complete = w.served()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for gr, o := range w.open {
		version, there := served[gr]
		if o.stop != nil && (!wanted[gr] || !there && complete || there && version != o.version) {
			o.stop()
			delete(w.open, gr)
		}
	}
	for gr := range wanted {
		if version, there := served[gr]; there && w.open[gr] == nil {
			w.begin(ctx, gr, version, wg)
		}
	}
}

// asks reports whether discovery is needed. It is not if all wanted resources are in shared caches.
func (w *watched) asks(wanted map[schema.GroupResource]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for gr := range wanted {
		if o := w.open[gr]; o == nil || o.stop != nil {
			return true
		}
	}
	return false
}

// begin starts to watch a resource.
func (w *watched) begin(
	ctx context.Context,
	gr schema.GroupResource,
	version schema.GroupVersionResource,
	wg *sync.WaitGroup,
) {
	ctx, stop := context.WithCancel(ctx)
	var informer cache.SharedIndexInformer
	if version == resourcev1.SchemeGroupVersion.WithResource("resourceclaims") {
		informer = informers.ResourceClaims(informers.New(w.client)).Informer()
	} else {
		informer = informers.Metadata(w.metadata, version, informers.ByNamespace)
		_ = informer.SetTransform(bare)
	}
	w.follow(gr, informer)
	w.open[gr] = &open{informer, version, stop}
	wg.Go(func() { informer.RunWithContext(ctx) })
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.known(gr)
		}
	})
}

// bare removes everything from an object's metadata that is not needed to count it.
func bare(obj any) (any, error) {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.Labels, o.Annotations, o.OwnerReferences, o.Finalizers, o.ManagedFields = nil, nil, nil, nil, nil
	}
	return obj, nil
}

// served returns the namespaced resources that can be counted, each in its preferred version. Groups that do not answer
// are missing; complete reports that all answered.
func (w *watched) served() (served map[schema.GroupResource]schema.GroupVersionResource, complete bool) {
	lists, err := w.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		w.log.Info("some kinds cannot be counted for quotas", "controller", "resourcequota", "reason", err)
	}
	served = map[schema.GroupResource]schema.GroupVersionResource{}
	for _, list := range discovery.WithVerbs(lists, "create", "list", "watch", "delete") {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, r := range list.APIResources {
			version := gv.WithResource(r.Name)
			served[version.GroupResource()] = version
		}
	}
	return served, err == nil
}
