package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/kube/kubernetes"
)

// Watches follow what kubelets need to know of the API: the pods that are on nodes, and the services that pods find in
// their environment. A kubelet has Watches of its own, unless it shares those of its process, where there are many.
type Watches struct {
	onNodes, all *informers.Factory
	pods         cache.ResourceEventHandlerRegistration
	services     cache.SharedIndexInformer
	nodes        corelisters.NodeLister // nil where the watches are of one node, which asks for itself

	mu        sync.Mutex
	followers map[string]podFollower
	told      map[string]map[types.NamespacedName]*corev1.Pod // by node: what there is, in the order of the watch
}

// podFollower is told of the pods of one node. What it does must not wait for anything: other nodes are told after it.
type podFollower struct{ seen, lost func(*corev1.Pod) }

// ShareWatches returns watches for all kubelets of a process, over a client that may list pods, services and nodes.
// They run until Run ends, which comes after the kubelets.
func ShareWatches(client kubernetes.Interface) (*Watches, error) {
	w, err := newWatches(client, fields.OneTermNotEqualSelector("spec.nodeName", ""))
	if err == nil {
		w.nodes = informers.Nodes(w.all).Lister() // which has them watched
	}
	return w, err
}

// newWatches returns watches of the pods that a selector chooses.
func newWatches(client kubernetes.Interface, pods fields.Selector) (w *Watches, err error) {
	w = &Watches{followers: map[string]podFollower{}, told: map[string]map[types.NamespacedName]*corev1.Pod{}}
	w.onNodes = informers.New(client, informers.WithTransform(lean),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = pods.String() }))
	w.all = informers.New(client, informers.WithTransform(lean))
	w.services = informers.Services(w.all).Informer()
	w.pods, err = informers.Pods(w.onNodes).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.tell(nil, o.(*corev1.Pod)) },
		UpdateFunc: func(old, o any) { w.tell(old.(*corev1.Pod), o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				w.tell(p, nil)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return w, nil
}

// Run follows the API until ctx ends. It is called once.
func (w *Watches) Run(ctx context.Context) error {
	w.onNodes.StartWithContext(ctx)
	w.all.StartWithContext(ctx)
	<-ctx.Done()
	w.onNodes.Shutdown()
	w.all.Shutdown()
	return ctx.Err()
}

// shared says whether there may be several kubelets.
func (w *Watches) shared() bool { return w.nodes != nil }

// synced waits until all that there is has been told; false when ctx ends first.
func (w *Watches) synced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced, w.services.HasSynced)
}

// listed waits until it is known which pods there are; false when ctx ends first.
func (w *Watches) listed(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced)
}

// tell tells the node of a pod that it has changed; old is nil for a new one, p for one that is gone.
func (w *Watches) tell(old, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Of a name there may be another pod, when the deletion of the first was not seen.
	if old != nil && (p == nil || p.UID != old.UID) {
		name := types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
		if delete(w.told[old.Spec.NodeName], name); len(w.told[old.Spec.NodeName]) == 0 {
			delete(w.told, old.Spec.NodeName)
		}
		if f, ok := w.followers[old.Spec.NodeName]; ok {
			f.lost(old)
		}
	}
	if p == nil {
		return
	}
	pods := w.told[p.Spec.NodeName]
	if pods == nil {
		pods = map[types.NamespacedName]*corev1.Pod{}
		w.told[p.Spec.NodeName] = pods
	}
	pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	if f, ok := w.followers[p.Spec.NodeName]; ok {
		f.seen(p)
	}
}

// follow has f told of the pods of a node, first of those that there are, until leave is called. Of these the ones come
// first that have run, and then the older: who comes later has to go where there is no room for both.
func (w *Watches) follow(node string, f podFollower) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followers[node] = f
	place := func(p *corev1.Pod) int {
		if began(p) {
			return 0
		}
		return 1
	}
	for _, p := range slices.SortedFunc(maps.Values(w.told[node]), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID))
	}) {
		f.seen(p)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, node)
	}
}

// count is how many pods a node has.
func (w *Watches) count(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told[node])
}

// listServices returns the services for pods' environment.
func (w *Watches) listServices() ([]*corev1.Service, error) {
	return corelisters.NewServiceLister(w.services.GetIndexer()).List(labels.Everything())
}
