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
	onNodes, all *informers.Factory
	pods         cache.ResourceEventHandlerRegistration
	services     cache.SharedIndexInformer
	nodes        corelisters.NodeLister // nil if the watches are for one node, whose kubelet reads the node itself

	mu        sync.Mutex
	followers map[string]podFollower
	told      map[string]map[types.NamespacedName]*corev1.Pod // current pods by node, as delivered by the watch
}

// podFollower receives the pods of one node. Its functions must not block, because other nodes wait for them.
type podFollower struct{ seen, lost func(*corev1.Pod) }

// ShareWatches returns watches for all kubelets of a process. The client must be allowed to list pods, services and
// nodes. The watches run until Run ends, which must come after the kubelets.
func ShareWatches(client kubernetes.Interface) (*Watches, error) {
	w, err := newWatches(client, fields.OneTermNotEqualSelector("spec.nodeName", ""))
	if err == nil {
		w.nodes = informers.Nodes(w.all).Lister() // Lister registers the informer
	}
	return w, err
}

// newWatches returns watches of the pods that match a selector.
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

// Run runs the watches until ctx ends. Call it once.
func (w *Watches) Run(ctx context.Context) error {
	w.onNodes.StartWithContext(ctx)
	w.all.StartWithContext(ctx)
	<-ctx.Done()
	w.onNodes.Shutdown()
	w.all.Shutdown()
	return ctx.Err()
}

// shared reports whether several kubelets may share the watches.
func (w *Watches) shared() bool { return w.nodes != nil }

// synced waits until the initial pods were delivered and the services are listed. It returns false if ctx ends first.
func (w *Watches) synced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced, w.services.HasSynced)
}

// listed waits until the initial pods were delivered. It returns false if ctx ends first.
func (w *Watches) listed(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced)
}

// tell passes a changed pod to the follower of its node. old is nil for a new pod, p is nil for a deleted one.
func (w *Watches) tell(old, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// There may be another pod with the same name if the deletion of the first was missed.
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

// follow passes the pods of a node to f until leave is called, beginning with the existing ones. Of these, pods that
// have already run come first, then older ones: if there is not enough room, the later ones are rejected.
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

// count returns the number of pods on a node.
func (w *Watches) count(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told[node])
}

// listServices returns the services for pods' environment.
func (w *Watches) listServices() ([]*corev1.Service, error) {
	return corelisters.NewServiceLister(w.services.GetIndexer()).List(labels.Everything())
}
