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

// quotaCaches holds the objects that quotas count. Pods, services and claims are in shared caches anyway. For any other
// resource, the metadata is watched as long as a quota names it.
type quotaCaches struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	log       *slog.Logger
	onChanged func(of schema.GroupResource, old, obj any)
	onKnown   func(of schema.GroupResource) // called once all objects of a resource are known
	ticker    func(time.Duration) clock.Ticker

	checkNow chan struct{} // receives a value when the resources to watch may have changed

	mu        sync.Mutex
	informers map[schema.GroupResource]*openInformer
}

type openInformer struct {
	informer cache.SharedIndexInformer
	version  schema.GroupVersionResource
	stop     context.CancelFunc // nil if the informer is shared
}

// checkInterval is the interval at which discovery is checked for resources that quotas name.
const checkInterval = 30 * time.Second

func newQuotaCaches(
	c loop.Context,
	changed func(schema.GroupResource, any, any),
	isKnown func(schema.GroupResource),
) *quotaCaches {
	return &quotaCaches{
		client:    c.Client,
		metadata:  c.Metadata,
		log:       c.Log,
		onChanged: changed,
		onKnown:   isKnown,
		ticker:    c.NewTicker,
		checkNow:  make(chan struct{}, 1),
		informers: map[schema.GroupResource]*openInformer{},
	}
}

// addShared adds a shared informer that is not started yet.
func (w *quotaCaches) addShared(of schema.GroupResource, informer cache.SharedIndexInformer) {
	w.informers[of] = &openInformer{informer: informer}
	w.addHandler(of, informer)
}

func (w *quotaCaches) addHandler(of schema.GroupResource, informer cache.SharedIndexInformer) {
	loop.OnChange(informer, func(old, obj any) { w.onChanged(of, old, obj) })
}

// objectsIn returns the objects of a namespace. It returns false if they are not known yet.
func (w *quotaCaches) objectsIn(of schema.GroupResource, namespace string) ([]any, bool) {
	w.mu.Lock()
	o := w.informers[of]
	w.mu.Unlock()
	if o == nil || !o.informer.HasSynced() {
		return nil, false
	}
	objs, err := o.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return objs, err == nil
}

// triggerCheck triggers a check of the resources to watch.
func (w *quotaCaches) triggerCheck() {
	select {
	case w.checkNow <- struct{}{}:
	default: // a check is already due
	}
}

// run watches the wanted resources until ctx ends.
func (w *quotaCaches) run(ctx context.Context, wanted func() map[schema.GroupResource]bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := w.ticker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		case <-w.checkNow:
		}
		w.updateWatches(ctx, wanted(), &wg)
	}
}

// updateWatches starts watches for resources that are wanted and served, and stops the others.
func (w *quotaCaches) updateWatches(ctx context.Context, wanted map[schema.GroupResource]bool, wg *sync.WaitGroup) {
	served, complete := map[schema.GroupResource]schema.GroupVersionResource{}, true
	if w.needsDiscovery(wanted) {
		served, complete = w.servedResources()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for gr, o := range w.informers {
		version, ok := served[gr]
		if o.stop != nil && (!wanted[gr] || !ok && complete || ok && version != o.version) {
			o.stop()
			delete(w.informers, gr)
		}
	}
	for gr := range wanted {
		if version, ok := served[gr]; ok && w.informers[gr] == nil {
			w.startWatch(ctx, gr, version, wg)
		}
	}
}

// needsDiscovery reports whether discovery is needed. It is not if all wanted resources are in shared caches.
func (w *quotaCaches) needsDiscovery(wanted map[schema.GroupResource]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for gr := range wanted {
		if o := w.informers[gr]; o == nil || o.stop != nil {
			return true
		}
	}
	return false
}

// startWatch starts to watch a resource.
func (w *quotaCaches) startWatch(
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
		_ = informer.SetTransform(trimMetadata)
	}
	w.addHandler(gr, informer)
	w.informers[gr] = &openInformer{informer, version, stop}
	wg.Go(func() { informer.RunWithContext(ctx) })
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.onKnown(gr)
		}
	})
}

// trimMetadata removes everything from an object's metadata that is not needed to count it.
func trimMetadata(obj any) (any, error) {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.Labels, o.Annotations, o.OwnerReferences, o.Finalizers, o.ManagedFields = nil, nil, nil, nil, nil
	}
	return obj, nil
}

// servedResources returns the namespaced resources that can be counted, each in its preferred version. Groups that do
// not answer are missing; complete reports that all answered.
func (w *quotaCaches) servedResources() (served map[schema.GroupResource]schema.GroupVersionResource, complete bool) {
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
