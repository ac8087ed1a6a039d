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
	clientcache "k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// excludeFinished excludes finished pods from a watch.
func excludeFinished(o *metav1.ListOptions) {
	o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
}

// trimObject removes everything from objects that the scheduler does not read.
func (s *scheduler) trimObject(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return cluster.NewPod(o, s.shapes), nil
	case *corev1.Node:
		return cluster.NewNode(o), nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID,
			ResourceVersion: o.ResourceVersion, Labels: o.Labels}}, nil
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
	case *storagev1.CSIDriver, *storagev1.CSIStorageCapacity, *storagev1.VolumeAttachment,
		*resourcev1.ResourceClaim, *resourcev1.DeviceClass, *resourcev1.ResourceSlice, *resourcev1.DeviceTaintRule:
		return client.WithoutManagers(obj)
	}
	return cluster.TrimOwner(obj)
}

// watch feeds the queue and the cluster from watches. It returns once all initial objects have arrived: before that,
// nodes appear emptier than they are. stop ends the watches.
func (s *scheduler) watch(ctx context.Context) (stop func(), err error) {
	factory := informers.New(s.api, informers.WithTransform(s.trimObject))
	pods := informers.New(s.api, informers.WithTransform(s.trimObject), informers.WithTweakListOptions(excludeFinished))
	var synced []clientcache.InformerSynced
	for _, w := range []struct {
		informer clientcache.SharedIndexInformer
		set      func(obj any, action string) // action is empty for an update
		drop     func(obj any)
	}{
		{informers.Nodes(factory).Informer(), ignoreAction(s.nodeUpdated), s.nodeDeleted},
		{informers.Pods(pods).Informer(), ignoreAction(s.podUpdated), s.podDeleted},
		{informers.Namespaces(factory).Informer(), ignoreAction(s.namespaceUpdated), s.namespaceDeleted},
		{informers.Services(factory).Informer(), ignoreAction(s.ownerUpdated), s.ownerDeleted},
		{informers.ReplicationControllers(factory).Informer(), ignoreAction(s.ownerUpdated), s.ownerDeleted},
		{informers.ReplicaSets(factory).Informer(), ignoreAction(s.ownerUpdated), s.ownerDeleted},
		{informers.StatefulSets(factory).Informer(), ignoreAction(s.ownerUpdated), s.ownerDeleted},
		{informers.PersistentVolumeClaims(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.PersistentVolumes(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.StorageClasses(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.CSINodes(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.CSIDrivers(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.CSIStorageCapacities(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.VolumeAttachments(factory).Informer(), s.storageUpdated(ctx), s.storageDeleted(ctx)},
		{informers.ResourceClaims(factory).Informer(), s.deviceUpdated, s.deviceDeleted},
		{informers.DeviceClasses(factory).Informer(), s.deviceUpdated, s.deviceDeleted},
		{informers.ResourceSlices(factory).Informer(), s.deviceUpdated, s.deviceDeleted},
		{informers.DeviceTaintRules(factory).Informer(), s.deviceUpdated, s.deviceDeleted},
		{informers.PodDisruptionBudgets(factory).Informer(), ignoreAction(s.budgetUpdated), s.budgetDeleted},
	} {
		registration, err := w.informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { w.set(obj, plugin.ActionAdd) }, UpdateFunc: func(_, obj any) { w.set(obj, "") },
			DeleteFunc: func(obj any) {
				if tombstone, ok := obj.(clientcache.DeletedFinalStateUnknown); ok {
					obj = tombstone.Obj
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

// ignoreAction returns f as a function that handles added and changed objects alike.
func ignoreAction(f func(any)) func(any, string) { return func(obj any, _ string) { f(obj) } }

func (s *scheduler) podUpdated(obj any) {
	p, ok := obj.(*cluster.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Finished:
		s.removePod(p)
	case p.NodeName != "":
		s.recordScheduledPod(p)
	case p.DeletionTimestamp != nil || p.Gated || s.settings.Profile(p.Scheduler) == nil:
		if s.queue.remove(p.UID) && p.DeletionTimestamp != nil {
			s.events[p.Scheduler].Record(p.Reference(), nil, corev1.EventTypeWarning, "FailedScheduling",
				actionScheduling, "skip schedule deleting pod: "+p.Key())
		}
		s.queue.setGated(p.UID, p.Gated && p.DeletionTimestamp == nil && s.settings.Profile(p.Scheduler) != nil)
		s.nominate(p, "")
		s.abandonBinding(p.UID)
	case s.cluster.Pod(p.UID) == nil: // otherwise it is assumed, and being bound
		if p.Nominated != s.queue.shownNomination(p.UID) {
			s.nominate(p, p.Nominated)
		}
		it, refused := s.queue.addOrUpdate(p)
		if refused != nil {
			s.refusals.add(it)
		}
	}
}

// nominate records a pod's nominated node. If another nomination ended, its resources are free for others.
func (s *scheduler) nominate(p *cluster.Pod, node string) {
	old := s.cluster.NominatedNode(p.UID)
	s.cluster.Nominate(p, node)
	if old != nil && old.Name != node {
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone, Node: old})
	}
}

// recordScheduledPod records a pod that has a node.
func (s *scheduler) recordScheduledPod(p *cluster.Pod) {
	s.queue.remove(p.UID)
	old := s.cluster.Pod(p.UID)
	if old != nil && s.cluster.Replace(old, p) {
		return // nothing relevant has changed
	}
	s.cluster.SetPod(p, p.NodeName)
	switch {
	case old == nil || old.Assumed:
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodPlaced, Pod: p})
		return
	case old.Shape != p.Shape:
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodPlaced, Pod: p, PodBefore: old})
	}
	s.activateHelped(
		plugin.ClusterEvent{EventKind: plugin.PodGone, Node: p.OnNode(), Pod: p, StillOnNode: true},
	) // it is being deleted, or was resized
}

func (s *scheduler) podDeleted(obj any) {
	if p, ok := obj.(*cluster.Pod); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removePod(p)
	}
}

// removePod removes a pod, and reports the free resources to waiting pods.
func (s *scheduler) removePod(p *cluster.Pod) {
	s.queue.remove(p.UID)
	s.queue.setGated(p.UID, false)
	s.abandonBinding(p.UID)
	what := plugin.ClusterEvent{EventKind: plugin.PodGone, Pod: p}
	if old := s.cluster.Pod(p.UID); old != nil {
		what.Node = old.OnNode()
	} else if !s.cluster.IsNominated(p.UID) {
		return // it used no resources
	}
	s.cluster.DeletePod(p.UID)
	s.activateHelped(what)
}

func (s *scheduler) nodeUpdated(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		var old *cluster.NodeObject
		if existing := s.cluster.Node(n.Name); existing != nil {
			old = existing.NodeObject
		}
		changed, before := s.cluster.SetNode(n)
		if !changed {
			return
		}
		node, action := s.cluster.Node(n.Name), n.ChangeAction(old)
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.NodeChanged, Node: node, Action: action})
		if before != nil { // this may help pods that do not fit the node itself
			s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DomainsChanged, Node: node, NodeBefore: before,
				Action: action})
		}
	}
}

func (s *scheduler) nodeDeleted(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster.DeleteNode(n.Name)
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DomainsChanged, Action: plugin.ActionDelete})
	}
}

func (s *scheduler) namespaceUpdated(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cluster.SetNamespace(ns.Name, ns.Labels) {
			s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DomainsChanged, IsNamespaceChange: true})
		}
	}
}

func (s *scheduler) namespaceDeleted(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster.DeleteNamespace(ns.Name)
	}
}

func (s *scheduler) ownerUpdated(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.SetOwner(obj)
}

func (s *scheduler) ownerDeleted(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.DeleteOwner(obj)
}

func (s *scheduler) storageUpdated(ctx context.Context) func(any, string) {
	return func(obj any, action string) {
		_, attached := obj.(*storagev1.VolumeAttachment) // an attachment leaves less for others
		s.storageChanged(ctx, obj, action, !attached, s.cluster.Storage.Set)
	}
}

func (s *scheduler) storageDeleted(ctx context.Context) func(any) {
	return func(obj any) {
		helps := false
		switch obj.(type) {
		case *storagev1.VolumeAttachment, *storagev1.CSINode, *storagev1.CSIDriver: // these may have been in the way
			helps = true
		}
		s.storageChanged(ctx, obj, plugin.ActionDelete, helps, s.cluster.Storage.Delete)
	}
}

func (s *scheduler) storageChanged(ctx context.Context, obj any, action string, helps bool, change func(any)) {
	s.mu.Lock()
	change(obj)
	if helps {
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.StorageChanged, Storage: obj, Action: action})
	}
	waiting := len(s.waiting) > 0
	s.mu.Unlock()
	if waiting {
		s.checkWaitingBindings(ctx)
	}
}

func (s *scheduler) budgetUpdated(obj any) {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.budgets.set(b)
	}
}

func (s *scheduler) budgetDeleted(obj any) {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.budgets.delete(b)
	}
}

// activateHelped activates the pods that an event may help. It checks once for each class of equal pods.
func (s *scheduler) activateHelped(what plugin.ClusterEvent) {
	task := &plugin.Task{Cluster: s.cluster} // plugins do not retain it
	s.queue.activateHelped(what, func(sample *cluster.Pod, plugins []string) bool {
		by := s.settings.Profile(sample.Scheduler)
		task.Pod, task.Args = sample, by.Args
		if what.EventKind == plugin.NodeChanged && what.Node != nil && !passesNodeOnlyChecks(by, task, what.Node) {
			return false
		}
		return len(plugins) == 0 || slices.ContainsFunc(plugins, func(name string) bool {
			p, _ := plugin.ByName(name)
			return p.HelpfulEvents&what.EventKind != 0 && (p.Hint == nil || p.Hint(task, what))
		})
	})
}

// passesNodeOnlyChecks reports whether the checks that depend only on the node object accept the node.
func passesNodeOnlyChecks(by *profile.Profile, task *plugin.Task, n *cluster.Node) bool {
	for _, f := range by.Filters {
		if !f.NeedsOnlyNode {
			continue
		}
		if check := f.Filter(task); check != nil && check(n) != nil {
			return false
		}
	}
	return true
}

// helpfulEvents returns the events that may help a pod which these plugins refused.
func helpfulEvents(plugins []string) plugin.EventKind {
	if len(plugins) == 0 {
		return plugin.Everything
	}
	var out plugin.EventKind
	for _, name := range plugins {
		if p, ok := plugin.ByName(name); ok {
			out |= p.HelpfulEvents
		}
	}
	return out
}
