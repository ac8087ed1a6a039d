package disruption

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

// scales knows how many pods controllers want.
type scales struct {
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	stateful    appslisters.StatefulSetLister
	controllers corelisters.ReplicationControllerLister
}

func newScales(from informers.SharedInformerFactory, synced []cache.InformerSynced, changed func(namespace string)) (scales, []cache.InformerSynced) {
	apps, rcs := from.Apps().V1(), from.Core().V1().ReplicationControllers()
	deployments, sets, stateful := apps.Deployments(), apps.ReplicaSets(), apps.StatefulSets()
	for _, informer := range []cache.SharedIndexInformer{deployments.Informer(), sets.Informer(), stateful.Informer(), rcs.Informer()} {
		synced = append(synced, informer.HasSynced)
		loop.OnChange(informer, func(old, obj any) {
			if a, ok := old.(metav1.Object); ok && obj != nil && a.GetGeneration() == obj.(metav1.Object).GetGeneration() {
				return // only a status
			}
			if obj == nil {
				obj = old
			}
			changed(obj.(metav1.Object).GetNamespace())
		})
	}
	return scales{deployments.Lister(), sets.Lister(), stateful.Lister(), rcs.Lister()}, synced
}

// expected is how many pods the controllers of the given ones want in all. Pods that
// nobody controls are not expected by anybody.
func (s scales) expected(pods []*corev1.Pod) (int, error) {
	seen := map[types.UID]bool{}
	total := 0
	for _, pod := range pods {
		ref := metav1.GetControllerOf(pod)
		if ref == nil {
			continue
		}
		uid, replicas, err := s.of(pod.Namespace, ref)
		if apierrors.IsNotFound(err) {
			continue // it is gone, and its pods go
		}
		if err != nil {
			return 0, err
		}
		if !seen[uid] {
			seen[uid] = true
			total += int(replicas)
		}
	}
	return total, nil
}

// of follows a pod's controller up to whoever decides about the number of its pods.
func (s scales) of(namespace string, ref *metav1.OwnerReference) (types.UID, int32, error) {
	wanted := func(n *int32) int32 {
		if n == nil {
			return 1
		}
		return *n
	}
	switch ref.Kind {
	case "ReplicaSet":
		set, err := s.sets.ReplicaSets(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		up := metav1.GetControllerOf(set)
		if up == nil || up.Kind != "Deployment" {
			return set.UID, wanted(set.Spec.Replicas), nil
		}
		var d *appsv1.Deployment
		if d, err = s.deployments.Deployments(namespace).Get(up.Name); err != nil {
			return "", 0, err
		}
		return d.UID, wanted(d.Spec.Replicas), nil
	case "StatefulSet":
		set, err := s.stateful.StatefulSets(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		return set.UID, wanted(set.Spec.Replicas), nil
	case "ReplicationController":
		rc, err := s.controllers.ReplicationControllers(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		return rc.UID, wanted(rc.Spec.Replicas), nil
	}
	return "", 0, fmt.Errorf("%s %s does not implement the scale subresource", ref.Kind, ref.Name)
}
