package cluster

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// owners holds the selectors of objects that select pods: Services, and controllers of pods.
type owners struct {
	services map[string]map[string]labels.Set // by namespace and name
	sets     map[workload]labels.Set          // of ReplicationControllers
	workload map[workload]labels.Selector     // of the other controllers
}

// workload identifies a controller of pods.
type workload struct{ kind, namespace, name string }

// Controllers whose selectors define sibling pods, in the form of owner references.
const (
	replicationController = "v1 ReplicationController"
	replicaSet            = "apps/v1 ReplicaSet"
	statefulSet           = "apps/v1 StatefulSet"
)

func newOwners() owners {
	return owners{map[string]map[string]labels.Set{}, map[workload]labels.Set{}, map[workload]labels.Selector{}}
}

// SetOwner adds or updates a Service, ReplicationController, ReplicaSet or StatefulSet.
func (c *Cluster) SetOwner(obj any) {
	switch o := obj.(type) {
	case *corev1.Service:
		if c.owners.services[o.Namespace] == nil {
			c.owners.services[o.Namespace] = map[string]labels.Set{}
		}
		c.owners.services[o.Namespace][o.Name] = o.Spec.Selector
	case *corev1.ReplicationController:
		c.owners.sets[workload{replicationController, o.Namespace, o.Name}] = o.Spec.Selector
	case *appsv1.ReplicaSet:
		c.owners.workload[workload{replicaSet, o.Namespace, o.Name}] = compileSelector(o.Spec.Selector)
	case *appsv1.StatefulSet:
		c.owners.workload[workload{statefulSet, o.Namespace, o.Name}] = compileSelector(o.Spec.Selector)
	}
}

// DeleteOwner removes a Service or controller.
func (c *Cluster) DeleteOwner(obj any) {
	switch o := obj.(type) {
	case *corev1.Service:
		if delete(c.owners.services[o.Namespace], o.Name); len(c.owners.services[o.Namespace]) == 0 {
			delete(c.owners.services, o.Namespace)
		}
	case *corev1.ReplicationController:
		delete(c.owners.sets, workload{replicationController, o.Namespace, o.Name})
	case *appsv1.ReplicaSet:
		delete(c.owners.workload, workload{replicaSet, o.Namespace, o.Name})
	case *appsv1.StatefulSet:
		delete(c.owners.workload, workload{statefulSet, o.Namespace, o.Name})
	}
}

// Siblings returns the pods that all Services of a shape's pods and their controller select, or nil if nothing selects
// them. If a Service and a ReplicationController require different values of a label, the latter counts.
func (c *Cluster) Siblings(s *Shape) *PodSelector {
	set := labels.Set{}
	services := c.owners.services[s.namespace]
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if of := services[name]; of != nil && containsAll(s.labels, of) {
			maps.Copy(set, of)
		}
	}
	var owner workload
	if s.Owner != nil {
		owner = workload{s.Owner.APIVersion + " " + s.Owner.Kind, s.namespace, s.Owner.Name}
		maps.Copy(set, c.owners.sets[owner])
	}
	selector := labels.SelectorFromSet(set)
	if of := c.owners.workload[owner]; of != nil {
		requirements, selectable := of.Requirements()
		if !selectable {
			return nil
		}
		selector = selector.Add(requirements...)
	}
	if selector.Empty() {
		return nil
	}
	return newPodSelector([]string{s.namespace}, nil, selector)
}

func containsAll(existing, want map[string]string) bool {
	for key, value := range want {
		if got, ok := existing[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// TrimOwner removes everything from a Service or controller that SetOwner does not read.
func TrimOwner(obj any) (any, error) {
	meta := func(o *metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	}
	switch o := obj.(type) {
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: meta(&o.ObjectMeta), Spec: corev1.ServiceSpec{Selector: o.Spec.Selector}},
			nil
	case *corev1.ReplicationController:
		return &corev1.ReplicationController{ObjectMeta: meta(&o.ObjectMeta),
			Spec: corev1.ReplicationControllerSpec{Selector: o.Spec.Selector}}, nil
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: meta(&o.ObjectMeta),
			Spec: appsv1.ReplicaSetSpec{Selector: o.Spec.Selector}}, nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: meta(&o.ObjectMeta),
			Spec: appsv1.StatefulSetSpec{Selector: o.Spec.Selector}}, nil
	}
	return obj, nil
}
