package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clientcache "k8s.io/client-go/tools/cache"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// unfinished leaves out pods that need no node any more.
func unfinished(o *metav1.ListOptions) {
	o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
}

// lean keeps of objects what the scheduler reads.
func (s *scheduler) lean(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return cluster.NewPod(o, s.shapes), nil
	case *corev1.Node:
		return cluster.NewNode(o), nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels}}, nil
	case *corev1.PersistentVolumeClaim:
		c := *o
		c.ManagedFields = nil
		return &c, nil
	case *corev1.PersistentVolume:
		v := *o
		v.ManagedFields = nil
		return &v, nil
	case *policyv1.PodDisruptionBudget:
		b := *o
		b.ManagedFields, b.Annotations = nil, nil
		return &b, nil
	case *storagev1.CSINode:
		n := *o
		n.ManagedFields, n.Annotations = nil, nil
		return &n, nil
	case *storagev1.CSIDriver, *storagev1.CSIStorageCapacity, *storagev1.VolumeAttachment:
		if m, ok := o.(metav1.Object); ok {
			m.SetManagedFields(nil)
			m.SetAnnotations(nil)
		}
		return o, nil
	case *resourcev1.ResourceClaim, *resourcev1.DeviceClass, *resourcev1.ResourceSlice, *resourcev1.DeviceTaintRule:
		if m, ok := o.(metav1.Object); ok {
			m.SetManagedFields(nil)
		}
		return o, nil
	}
	return cluster.LeanOwner(obj)
}

// watch feeds the queue and the cluster from what the API shows. It returns when all that was there at first has arrived:
// before that, nodes seem emptier than they are. What it returns ends the watches.
func (s *scheduler) watch(ctx context.Context) (stop func(), err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.api, 0, informers.WithTransform(s.lean))
	pods := informers.NewSharedInformerFactoryWithOptions(s.api, 0, informers.WithTransform(s.lean), informers.WithTweakListOptions(unfinished))
	var synced []clientcache.InformerSynced
	for _, w := range []struct {
		informer  clientcache.SharedIndexInformer
		set, drop func(obj any)
	}{
		{factory.Core().V1().Nodes().Informer(), s.nodeSeen, s.nodeGone},
		{pods.Core().V1().Pods().Informer(), s.podSeen, s.podGone},
		{factory.Core().V1().Namespaces().Informer(), s.namespaceSeen, s.namespaceGone},
		{factory.Core().V1().Services().Informer(), s.ownerSeen, s.ownerGone},
		{factory.Core().V1().ReplicationControllers().Informer(), s.ownerSeen, s.ownerGone},
		{factory.Apps().V1().ReplicaSets().Informer(), s.ownerSeen, s.ownerGone},
		{factory.Apps().V1().StatefulSets().Informer(), s.ownerSeen, s.ownerGone},
		{factory.Core().V1().PersistentVolumeClaims().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Core().V1().PersistentVolumes().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Storage().V1().StorageClasses().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Storage().V1().CSINodes().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Storage().V1().CSIDrivers().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Storage().V1().CSIStorageCapacities().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Storage().V1().VolumeAttachments().Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{factory.Resource().V1().ResourceClaims().Informer(), s.deviceSeen, s.deviceGone},
		{factory.Resource().V1().DeviceClasses().Informer(), s.deviceSeen, s.deviceGone},
		{factory.Resource().V1().ResourceSlices().Informer(), s.deviceSeen, s.deviceGone},
		{factory.Resource().V1().DeviceTaintRules().Informer(), s.deviceSeen, s.deviceGone},
		{factory.Policy().V1().PodDisruptionBudgets().Informer(), s.budgetSeen, s.budgetGone},
	} {
		registration, err := w.informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
			AddFunc: w.set, UpdateFunc: func(_, obj any) { w.set(obj) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(clientcache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				w.drop(obj)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	factory.StartWithContext(ctx)
	pods.StartWithContext(ctx)
	clientcache.WaitForCacheSync(ctx.Done(), synced...)
	return func() {
		factory.Shutdown()
		pods.Shutdown()
	}, nil
}

func (s *scheduler) podSeen(obj any) {
	p, ok := obj.(*cluster.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Finished:
		s.lost(p)
	case p.NodeName != "":
		s.onNode(p)
	case p.DeletionTimestamp != nil || p.Gated || s.settings.Profile(p.Scheduler) == nil:
		s.queue.drop(p.UID)
		s.cluster.Nominate(p, "")
	case s.cluster.Pod(p.UID) == nil: // else it is assumed, and on its way
		if p.Nominated != s.queue.promised(p.UID) {
			s.cluster.Nominate(p, p.Nominated)
		}
		it, added, told := s.queue.put(p)
		if added {
			s.metrics.incoming.WithLabelValues("active", "UnscheduledPodAdd").Inc()
		}
		if told != nil {
			s.tell.add(it)
		}
	}
}

// onNode takes in a pod that has a node.
func (s *scheduler) onNode(p *cluster.Pod) {
	s.queue.drop(p.UID)
	old := s.cluster.Pod(p.UID)
	if old != nil && s.cluster.Replace(old, p) {
		return // nothing that counts has changed
	}
	s.cluster.SetPod(p, p.NodeName)
	switch {
	case old == nil || old.Assumed:
		s.happened(plugin.Happened{Event: plugin.PodPlaced, Pod: p})
	case old.Shape != p.Shape:
		s.happened(plugin.Happened{Event: plugin.PodPlaced | plugin.PodGone})
	default: // it is being deleted, or was resized
		s.happened(plugin.Happened{Event: plugin.PodGone, Node: p.OnNode()})
	}
}

func (s *scheduler) podGone(obj any) {
	if p, ok := obj.(*cluster.Pod); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lost(p)
	}
}

// lost forgets a pod, whose room others may take.
func (s *scheduler) lost(p *cluster.Pod) {
	s.queue.drop(p.UID)
	what := plugin.Happened{Event: plugin.PodGone, Pod: p}
	if old := s.cluster.Pod(p.UID); old != nil {
		what.Node = old.OnNode()
	} else if !s.cluster.Promised(p.UID) {
		return // it had no room
	}
	s.cluster.DropPod(p.UID)
	s.happened(what)
}

func (s *scheduler) nodeSeen(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cluster.SetNode(n) {
			s.happened(plugin.Happened{Event: plugin.NodeChanged, Node: s.cluster.Node(n.Name)})
		}
	}
}

func (s *scheduler) nodeGone(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster.DropNode(n.Name)
		s.happened(plugin.Happened{Event: plugin.PodGone}) // domains have changed
	}
}

func (s *scheduler) namespaceSeen(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cluster.SetNamespace(ns.Name, ns.Labels) {
			s.happened(plugin.Happened{Event: plugin.PodPlaced | plugin.PodGone})
		}
	}
}

func (s *scheduler) namespaceGone(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster.DropNamespace(ns.Name)
	}
}

func (s *scheduler) ownerSeen(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.SetOwner(obj)
}

func (s *scheduler) ownerGone(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.DropOwner(obj)
}

func (s *scheduler) storageSeen(ctx context.Context) func(any) {
	return func(obj any) { s.storageChanged(ctx, func() { s.cluster.Storage.Set(obj) }) }
}

func (s *scheduler) storageGone(ctx context.Context) func(any) {
	return func(obj any) { s.storageChanged(ctx, func() { s.cluster.Storage.Drop(obj) }) }
}

func (s *scheduler) storageChanged(ctx context.Context, change func()) {
	s.mu.Lock()
	change()
	s.happened(plugin.Happened{Event: plugin.StorageChanged})
	waiting := len(s.waiting) > 0
	s.mu.Unlock()
	if waiting {
		s.claimsChanged(ctx)
	}
}

func (s *scheduler) budgetSeen(obj any) {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.budgets.set(b)
	}
}

func (s *scheduler) budgetGone(obj any) {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.budgets.drop(b)
	}
}

// happened brings back the pods that an event may help: one look for each class of equal pods.
func (s *scheduler) happened(what plugin.Happened) {
	task := &plugin.Task{Cluster: s.cluster} // no plugin keeps it
	s.queue.move(what.Event, func(sample *cluster.Pod, plugins []string) bool {
		by := s.settings.Profile(sample.Scheduler)
		task.Pod, task.Args = sample, by.Args
		if what.Event == plugin.NodeChanged && what.Node != nil && !nodeItselfDoes(by, task, what.Node) {
			return false
		}
		return len(plugins) == 0 || slices.ContainsFunc(plugins, func(name string) bool {
			p, _ := plugin.Named(name)
			return p.Wakes&what.Event != 0 && (p.Hint == nil || p.Hint(task, what))
		})
	})
}

// nodeItselfDoes says whether nothing of the node object alone is in the way.
func nodeItselfDoes(by *profile.Profile, task *plugin.Task, n *cluster.Node) bool {
	for _, f := range by.Filters {
		if !f.NodeOnly {
			continue
		}
		if check := f.Filter(task); check != nil && check(n) != nil {
			return false
		}
	}
	return true
}

// wakes are the events that may help a pod which plugins have refused.
func wakes(plugins []string) plugin.Event {
	if len(plugins) == 0 {
		return plugin.Everything
	}
	var out plugin.Event
	for _, name := range plugins {
		if p, ok := plugin.Named(name); ok {
			out |= p.Wakes
		}
	}
	return out
}
