package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/storage"
)

// defaultStorageClass sets the default class on claims that name none.
type defaultStorageClass struct{ objects api.Objects }

// Admit chooses the newest class that is marked as default, if there is one.
func (p *defaultStorageClass) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", claimsGR) {
		return nil
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.StorageClassName != nil || claim.Annotations[corev1.BetaStorageClassAnnotation] != "" {
		return nil
	}
	var best *storagev1.StorageClass
	for _, obj := range p.objects.List(resourceName{Group: storagev1.GroupName, Resource: "storageclasses"}, "") {
		c := obj.(*storagev1.StorageClass)
		if c.Annotations[storage.DefaultClassAnnotation] != "true" {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&c.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	if best != nil {
		name := best.Name
		claim.Spec.StorageClassName = &name
	}
	return nil
}

// runtimeClass adds the overhead and the scheduling rules of a runtime class to pods that name it.
type runtimeClass struct{ objects api.Objects }

// Admit refuses a class that does not exist, and an overhead that differs from the class's.
func (p *runtimeClass) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || pod.Spec.RuntimeClassName == nil {
		return nil
	}
	obj, found := p.objects.Get(resourceName{Group: nodev1.GroupName, Resource: "runtimeclasses"}, "",
		*pod.Spec.RuntimeClassName)
	if !found {
		return forbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName))
	}
	class := obj.(*nodev1.RuntimeClass)
	if class.Overhead != nil {
		if pod.Spec.Overhead != nil && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return forbidden(a, fmt.Errorf(
				"pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, v := range class.Scheduling.NodeSelector {
		if current, ok := pod.Spec.NodeSelector[key]; ok && current != v {
			return forbidden(a, fmt.Errorf(
				"conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, v, key,
				current))
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = v
	}
	for _, t := range class.Scheduling.Tolerations {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, *t.DeepCopy())
	}
	return nil
}
