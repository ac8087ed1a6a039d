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

// Watches watches the parts of the API that kubelets need: the pods assigned to nodes, and the services for pods'
// environment. Each kubelet has its own Watches, unless a process with many kubelets shares one.
type Watches struct {
	podFactory, commonFactory *informers.Factory
	pods                      cache.ResourceEventHandlerRegistration
	services                  cache.SharedIndexInformer
	// nil if the watches are for one node, whose kubelet reads the node itself
	nodes corelisters.NodeLister

	mu         sync.Mutex
	followers  map[string]podFollower
	podsByNode map[string]map[types.NamespacedName]*corev1.Pod // current pods by node, as delivered by the watch
}

// podFollower receives the pods of one node. Its functions must not block, because other nodes wait for them.
type podFollower struct{ updated, deleted func(*corev1.Pod) }

// ShareWatches returns watches for all kubelets of a process. The client must be allowed to list pods, services and
// nodes. The watches run until Run ends, which must come after the kubelets.
func ShareWatches(client kubernetes.Interface) (*Watches, error) {
	w, err := newWatches(client, fields.OneTermNotEqualSelector("spec.nodeName", ""))
	if err == nil {
		w.nodes = informers.Nodes(w.commonFactory).Lister() // Lister registers the informer
	}
	return w, err
}

// newWatches returns watches of the pods that match a selector.
func newWatches(client kubernetes.Interface, pods fields.Selector) (w *Watches, err error) {
	w = &Watches{followers: map[string]podFollower{}, podsByNode: map[string]map[types.NamespacedName]*corev1.Pod{}}
	w.podFactory = informers.New(client, informers.WithTransform(trimObject),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = pods.String() }))
	w.commonFactory = informers.New(client, informers.WithTransform(trimObject))
	w.services = informers.Services(w.commonFactory).Informer()
	w.pods, err = informers.Pods(w.podFactory).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.dispatch(nil, o.(*corev1.Pod)) },
		UpdateFunc: func(old, o any) { w.dispatch(old.(*corev1.Pod), o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				w.dispatch(p, nil)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return w, nil
}

// Run runs the watches until ctx ends. Call it once.
func (w *Watches) Run(ctx context.Context) error {
	w.podFactory.StartWithContext(ctx)
	w.commonFactory.StartWithContext(ctx)
	<-ctx.Done()
	w.podFactory.Shutdown()
	w.commonFactory.Shutdown()
	return ctx.Err()
}

// isShared reports whether several kubelets may share the watches.
func (w *Watches) isShared() bool { return w.nodes != nil }

// waitSynced waits until the initial pods were delivered and the services are listed. It returns false if ctx ends
// first.
func (w *Watches) waitSynced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced, w.services.HasSynced)
}

// waitListed waits until the initial pods were delivered. It returns false if ctx ends first.
func (w *Watches) waitListed(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced)
}

// dispatch passes a changed pod to the follower of its node. old is nil for a new pod, p is nil for a deleted one.
func (w *Watches) dispatch(old, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// There may be another pod with the same name if the deletion of the first was missed.
	if old != nil && (p == nil || p.UID != old.UID) {
		name := types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
		if delete(w.podsByNode[old.Spec.NodeName], name); len(w.podsByNode[old.Spec.NodeName]) == 0 {
			delete(w.podsByNode, old.Spec.NodeName)
		}
		if f, ok := w.followers[old.Spec.NodeName]; ok {
			f.deleted(old)
		}
	}
	if p == nil {
		return
	}
	pods := w.podsByNode[p.Spec.NodeName]
	if pods == nil {
		pods = map[types.NamespacedName]*corev1.Pod{}
		w.podsByNode[p.Spec.NodeName] = pods
	}
	pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	if f, ok := w.followers[p.Spec.NodeName]; ok {
		f.updated(p)
	}
}

// follow passes the pods of a node to f until leave is called, beginning with the existing ones. Of these, pods that
// have already run come first, then older ones: if there is not enough room, the later ones are rejected.
func (w *Watches) follow(node string, f podFollower) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followers[node] = f
	place := func(p *corev1.Pod) int {
		if hasBegun(p) {
			return 0
		}
		return 1
	}
	for _, p := range slices.SortedFunc(maps.Values(w.podsByNode[node]), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID))
	}) {
		f.updated(p)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, node)
	}
}

// count returns the number of pods on a node.
func (w *Watches) count(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.podsByNode[node])
}

// listServices returns the services for pods' environment.
func (w *Watches) listServices() ([]*corev1.Service, error) {
	return corelisters.NewServiceLister(w.services.GetIndexer()).List(labels.Everything())
}
