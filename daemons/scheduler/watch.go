package scheduler

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clientcache "k8s.io/client-go/tools/cache"

	"clusterctl/daemons/scheduler/plugin"
)

// unfinished leaves out pods that need no node any more.
func unfinished(o *metav1.ListOptions) {
	o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
}

// slim drops what the scheduler never reads.
func slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// lookups are the caches that plugins may look into.
type lookups struct {
	namespaces corelisters.NamespaceLister
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	classes    storagelisters.StorageClassLister
	budgets    policylisters.PodDisruptionBudgetLister
}

func newLookups(f informers.SharedInformerFactory) lookups {
	return lookups{
		f.Core().V1().Namespaces().Lister(), f.Core().V1().PersistentVolumeClaims().Lister(), f.Core().V1().PersistentVolumes().Lister(),
		f.Storage().V1().StorageClasses().Lister(), f.Policy().V1().PodDisruptionBudgets().Lister(),
	}
}

func (l lookups) namespace(name string) map[string]string {
	ns, err := l.namespaces.Get(name)
	if err != nil {
		return nil
	}
	return ns.Labels
}

// Claim, Volume and Class make lookups plugin.Volumes.
func (l lookups) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	c, err := l.claims.PersistentVolumeClaims(namespace).Get(name)
	return c, err == nil
}

// Volume returns a persistent volume.
func (l lookups) Volume(name string) (*corev1.PersistentVolume, bool) {
	v, err := l.volumes.Get(name)
	return v, err == nil
}

// Class returns a storage class.
func (l lookups) Class(name string) (*storagev1.StorageClass, bool) {
	c, err := l.classes.Get(name)
	return c, err == nil
}

// watch feeds the queue and the cache from what the API shows. It returns what tells
// whether all that was there at first has arrived: before that, nodes seem emptier
// than they are.
func (s *scheduler) watch() ([]clientcache.InformerSynced, error) {
	var synced []clientcache.InformerSynced
	for _, w := range []struct {
		informer clientcache.SharedIndexInformer
		handler  clientcache.ResourceEventHandlerFuncs
	}{
		{s.pods.Core().V1().Pods().Informer(), clientcache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.podSeen(nil, obj.(*corev1.Pod)) },
			UpdateFunc: func(old, obj any) { s.podSeen(old.(*corev1.Pod), obj.(*corev1.Pod)) },
			DeleteFunc: func(obj any) {
				if pod, ok := last[*corev1.Pod](obj); ok {
					s.podGone(pod)
				}
			},
		}},
		{s.factory.Core().V1().Nodes().Informer(), clientcache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.nodeSeen(nil, obj.(*corev1.Node)) },
			UpdateFunc: func(old, obj any) { s.nodeSeen(old.(*corev1.Node), obj.(*corev1.Node)) },
			DeleteFunc: func(obj any) {
				if node, ok := last[*corev1.Node](obj); ok {
					s.cache.dropNode(node.Name)
				}
			},
		}},
		{s.factory.Core().V1().PersistentVolumeClaims().Informer(), s.storageChanged()},
		{s.factory.Core().V1().PersistentVolumes().Informer(), s.storageChanged()},
		{s.factory.Storage().V1().StorageClasses().Informer(), s.storageChanged()},
		{s.factory.Core().V1().Namespaces().Informer(), clientcache.ResourceEventHandlerFuncs{}},
		{s.factory.Policy().V1().PodDisruptionBudgets().Informer(), clientcache.ResourceEventHandlerFuncs{}},
	} {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

// last returns the object of a deletion, also of one that was not seen itself.
func last[T any](obj any) (T, bool) {
	if gone, ok := obj.(clientcache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	t, ok := obj.(T)
	return t, ok
}

func (s *scheduler) podSeen(old, pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		s.queue.drop(pod.UID)
		s.cache.setPod(plugin.NewPod(pod))
		if old == nil || old.Spec.NodeName == "" || !maps.Equal(old.Labels, pod.Labels) {
			// Someone may have waited for company.
			s.queue.move(func(it *item) bool {
				return slices.Contains(it.filters, "InterPodAffinity") || slices.Contains(it.filters, "PodTopologySpread")
			})
		} else if old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil {
			s.queue.move(func(it *item) bool {
				return slices.Contains(it.filters, "PodTopologySpread") || slices.Contains(it.filters, "InterPodAffinity")
			})
		} else if plugin.Resized(old, pod) {
			s.queue.move(func(it *item) bool { return slices.Contains(it.filters, "NodeResourcesFit") })
		}
		return
	}
	if !mine(pod) {
		s.queue.drop(pod.UID)
		return
	}
	p := plugin.NewPod(pod)
	s.cache.nominate(p, pod.Status.NominatedNodeName)
	s.queue.put(p)
}

// mine says whether it is for this scheduler to find a node for a pod, now.
func mine(pod *corev1.Pod) bool {
	return pod.Spec.SchedulerName == Name && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

func (s *scheduler) podGone(pod *corev1.Pod) {
	s.queue.drop(pod.UID)
	s.cache.dropPod(pod.UID)
	if pod.Spec.NodeName != "" {
		s.queue.move(func(it *item) bool { return helped(it.filters) })
	}
}

// helped says whether a pod that the filters refused may have its place when another goes.
func helped(filters []string) bool {
	for i := range plugin.Filters {
		if plugin.Filters[i].Helpable && slices.Contains(filters, plugin.Filters[i].Name) {
			return true
		}
	}
	return len(filters) == 0
}

func (s *scheduler) nodeSeen(old, node *corev1.Node) {
	s.cache.setNode(node)
	if old == nil || matters(old, node) {
		s.queue.move(nil)
	}
}

// matters says whether a change of a node may let a pod go there that could not before;
// heartbeats do not.
func matters(old, node *corev1.Node) bool {
	return old.Spec.Unschedulable != node.Spec.Unschedulable || !maps.Equal(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable)
}

func (s *scheduler) storageChanged() clientcache.ResourceEventHandlerFuncs {
	move := func(any) {
		s.queue.move(func(it *item) bool { return slices.Contains(it.filters, "VolumeBinding") })
	}
	return clientcache.ResourceEventHandlerFuncs{AddFunc: move, UpdateFunc: func(_, obj any) { move(obj) }}
}
