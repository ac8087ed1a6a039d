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

// unfinished excludes finished pods from a watch.
func unfinished(o *metav1.ListOptions) {
	o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
}

// lean removes everything from objects that the scheduler does not read.
func (s *scheduler) lean(obj any) (any, error) {
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
	return cluster.LeanOwner(obj)
}

// watch feeds the queue and the cluster from watches. It returns once all initial objects have arrived: before that,
// nodes appear emptier than they are. stop ends the watches.
func (s *scheduler) watch(ctx context.Context) (stop func(), err error) {
	factory := informers.New(s.api, informers.WithTransform(s.lean))
	pods := informers.New(s.api, informers.WithTransform(s.lean), informers.WithTweakListOptions(unfinished))
	var synced []clientcache.InformerSynced
	for _, w := range []struct {
		informer clientcache.SharedIndexInformer
		set      func(obj any, action string) // action is empty for an update
		drop     func(obj any)
	}{
		{informers.Nodes(factory).Informer(), either(s.nodeSeen), s.nodeGone},
		{informers.Pods(pods).Informer(), either(s.podSeen), s.podGone},
		{informers.Namespaces(factory).Informer(), either(s.namespaceSeen), s.namespaceGone},
		{informers.Services(factory).Informer(), either(s.ownerSeen), s.ownerGone},
		{informers.ReplicationControllers(factory).Informer(), either(s.ownerSeen), s.ownerGone},
		{informers.ReplicaSets(factory).Informer(), either(s.ownerSeen), s.ownerGone},
		{informers.StatefulSets(factory).Informer(), either(s.ownerSeen), s.ownerGone},
		{informers.PersistentVolumeClaims(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.PersistentVolumes(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.StorageClasses(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.CSINodes(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.CSIDrivers(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.CSIStorageCapacities(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.VolumeAttachments(factory).Informer(), s.storageSeen(ctx), s.storageGone(ctx)},
		{informers.ResourceClaims(factory).Informer(), s.deviceSeen, s.deviceGone},
		{informers.DeviceClasses(factory).Informer(), s.deviceSeen, s.deviceGone},
		{informers.ResourceSlices(factory).Informer(), s.deviceSeen, s.deviceGone},
		{informers.DeviceTaintRules(factory).Informer(), s.deviceSeen, s.deviceGone},
		{informers.PodDisruptionBudgets(factory).Informer(), either(s.budgetSeen), s.budgetGone},
	} {
		registration, err := w.informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { w.set(obj, plugin.Came) }, UpdateFunc: func(_, obj any) { w.set(obj, "") },
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

// either returns f as a function that handles added and changed objects alike.
func either(f func(any)) func(any, string) { return func(obj any, _ string) { f(obj) } }

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
		if s.queue.drop(p.UID) && p.DeletionTimestamp != nil {
			s.events[p.Scheduler].Tell(
				p.Reference(),
				nil,
				corev1.EventTypeWarning,
				"FailedScheduling",
				scheduling,
				"skip schedule deleting pod: "+p.Key(),
			)
		}
		s.queue.gate(p.UID, p.Gated && p.DeletionTimestamp == nil && s.settings.Profile(p.Scheduler) != nil)
		s.nominate(p, "")
		s.abandon(p.UID)
	case s.cluster.Pod(p.UID) == nil: // otherwise it is assumed, and being bound
		if p.Nominated != s.queue.promised(p.UID) {
			s.nominate(p, p.Nominated)
		}
		it, told := s.queue.put(p)
		if told != nil {
			s.tell.add(it)
		}
	}
}

// nominate records a pod's nominated node. If another nomination ended, its resources are free for others.
func (s *scheduler) nominate(p *cluster.Pod, node string) {
	old := s.cluster.PromisedNode(p.UID)
	s.cluster.Nominate(p, node)
	if old != nil && old.Name != node {
		s.happened(plugin.Happened{Event: plugin.PodGone, Node: old})
	}
}

// onNode records a pod that has a node.
func (s *scheduler) onNode(p *cluster.Pod) {
	s.queue.drop(p.UID)
	old := s.cluster.Pod(p.UID)
	if old != nil && s.cluster.Replace(old, p) {
		return // nothing relevant has changed
	}
	s.cluster.SetPod(p, p.NodeName)
	switch {
	case old == nil || old.Assumed:
		s.happened(plugin.Happened{Event: plugin.PodPlaced, Pod: p})
		return
	case old.Shape != p.Shape:
		s.happened(plugin.Happened{Event: plugin.PodPlaced, Pod: p, Was: old})
	}
	s.happened(
		plugin.Happened{Event: plugin.PodGone, Node: p.OnNode(), Pod: p, Leaving: true},
	) // it is being deleted, or was resized
}

func (s *scheduler) podGone(obj any) {
	if p, ok := obj.(*cluster.Pod); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lost(p)
	}
}

// lost removes a pod, and reports the free resources to waiting pods.
func (s *scheduler) lost(p *cluster.Pod) {
	s.queue.drop(p.UID)
	s.queue.gate(p.UID, false)
	s.abandon(p.UID)
	what := plugin.Happened{Event: plugin.PodGone, Pod: p}
	if old := s.cluster.Pod(p.UID); old != nil {
		what.Node = old.OnNode()
	} else if !s.cluster.Promised(p.UID) {
		return // it used no resources
	}
	s.cluster.DropPod(p.UID)
	s.happened(what)
}

func (s *scheduler) nodeSeen(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		var old *cluster.NodeObject
		if known := s.cluster.Node(n.Name); known != nil {
			old = known.NodeObject
		}
		changed, before := s.cluster.SetNode(n)
		if !changed {
			return
		}
		node, action := s.cluster.Node(n.Name), n.Change(old)
		s.happened(plugin.Happened{Event: plugin.NodeChanged, Node: node, Action: action})
		if before != nil { // this may help pods that do not fit the node itself
			s.happened(plugin.Happened{Event: plugin.DomainsChanged, Node: node, Before: before, Action: action})
		}
	}
}

func (s *scheduler) nodeGone(obj any) {
	if n, ok := obj.(*cluster.NodeObject); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster.DropNode(n.Name)
		s.happened(plugin.Happened{Event: plugin.DomainsChanged, Action: plugin.Gone})
	}
}

func (s *scheduler) namespaceSeen(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cluster.SetNamespace(ns.Name, ns.Labels) {
			s.happened(plugin.Happened{Event: plugin.DomainsChanged, Namespace: true})
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

func (s *scheduler) storageSeen(ctx context.Context) func(any, string) {
	return func(obj any, action string) {
		_, attached := obj.(*storagev1.VolumeAttachment) // an attachment leaves less for others
		s.storageChanged(ctx, obj, action, !attached, s.cluster.Storage.Set)
	}
}

func (s *scheduler) storageGone(ctx context.Context) func(any) {
	return func(obj any) {
		helps := false
		switch obj.(type) {
		case *storagev1.VolumeAttachment, *storagev1.CSINode, *storagev1.CSIDriver: // these may have been in the way
			helps = true
		}
		s.storageChanged(ctx, obj, plugin.Gone, helps, s.cluster.Storage.Drop)
	}
}

func (s *scheduler) storageChanged(ctx context.Context, obj any, action string, helps bool, change func(any)) {
	s.mu.Lock()
	change(obj)
	if helps {
		s.happened(plugin.Happened{Event: plugin.StorageChanged, Storage: obj, Action: action})
	}
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

// happened activates the pods that an event may help. It checks once for each class of equal pods.
func (s *scheduler) happened(what plugin.Happened) {
	task := &plugin.Task{Cluster: s.cluster} // plugins do not retain it
	s.queue.move(what, func(sample *cluster.Pod, plugins []string) bool {
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

// nodeItselfDoes reports whether the checks that depend only on the node object accept the node.
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

// wakes returns the events that may help a pod which these plugins refused.
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
