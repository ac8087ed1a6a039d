package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// scales determines how many pods controllers want.
type scales struct {
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	stateful    appslisters.StatefulSetLister
	controllers corelisters.ReplicationControllerLister
	live        liveScales
}

func newScales(
	c loop.Context,
	synced []cache.InformerSynced,
	changed func(namespace string),
) (scales, []cache.InformerSynced) {
	deployments, sets := informers.Deployments(c.Informers), informers.ReplicaSets(c.Informers)
	stateful, rcs := informers.StatefulSets(c.Informers), informers.ReplicationControllers(c.Informers)
	for _, informer := range []cache.SharedIndexInformer{deployments.Informer(), sets.Informer(), stateful.Informer(),
		rcs.Informer()} {
		synced = append(synced, informer.HasSynced)
		c.OnChange(informer, func(old, obj any) {
			if a, ok := old.(metav1.Object); ok && obj != nil &&
				a.GetGeneration() == obj.(metav1.Object).GetGeneration() {
				return // only the status changed
			}
			if obj == nil {
				obj = old
			}
			changed(obj.(metav1.Object).GetNamespace())
		})
	}
	return scales{deployments.Lister(), sets.Lister(), stateful.Lister(), rcs.Lister(), newLive(c)}, synced
}

// expectedPods returns how many pods the controllers of the given pods want in all, and the pods without a controller.
// If one controller's number is unknown, it returns an error: a sum without it would allow too many evictions.
func (s scales) expectedPods(ctx context.Context, pods []*corev1.Pod) (total int, unmanaged []*corev1.Pod, err error) {
	seen := map[types.UID]bool{}  // controllers of the pods
	added := map[types.UID]bool{} // objects that define the number, such as Deployments
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = append(unmanaged, pod)
			continue
		}
		if seen[ref.UID] {
			continue
		}
		seen[ref.UID] = true
		w := s.watchedScale(pod.Namespace, ref)
		if w == nil {
			if w, err = s.live.scaleOf(ctx, pod.Namespace, ref); err != nil {
				return 0, nil, err
			}
		}
		if w == nil {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		if !added[w.uid] {
			added[w.uid] = true
			total += int(w.replicas)
		}
	}
	return total, unmanaged, nil
}

// desiredScale is the object that defines the number of pods, and that number.
type desiredScale struct {
	uid      types.UID
	replicas int32
}

// watchedScale returns the object that defines a controller's number of pods. It returns nil if the kind is not watched
// or the object is not in the cache.
func (s scales) watchedScale(namespace string, ref *metav1.OwnerReference) *desiredScale {
	by := func(uid, uID types.UID, replicas *int32) *desiredScale {
		switch {
		case uid != uID:
			return nil
		case replicas == nil:
			return &desiredScale{uid, 1}
		}
		return &desiredScale{uid, *replicas}
	}
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	switch group {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		set, err := s.sets.ReplicaSets(namespace).Get(ref.Name)
		if err != nil || set.UID != ref.UID {
			return nil
		}
		up := metav1.GetControllerOfNoCopy(set)
		if up == nil || up.Kind != "Deployment" {
			return by(set.UID, ref.UID, set.Spec.Replicas)
		}
		if d, err := s.deployments.Deployments(namespace).Get(up.Name); err == nil {
			return by(d.UID, up.UID, d.Spec.Replicas)
		}
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		if set, err := s.stateful.StatefulSets(namespace).Get(ref.Name); err == nil {
			return by(set.UID, ref.UID, set.Spec.Replicas)
		}
	case schema.GroupKind{Kind: "ReplicationController"}:
		if rc, err := s.controllers.ReplicationControllers(namespace).Get(ref.Name); err == nil {
			return by(rc.UID, ref.UID, rc.Spec.Replicas)
		}
	}
	return nil
}
