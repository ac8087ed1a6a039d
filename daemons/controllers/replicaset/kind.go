package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// set is an object of either kind in the form of a ReplicaSet.
type set struct {
	*appsv1.ReplicaSet
	object loop.OwnerObject // the original object, for events
}

// kind holds the differences between ReplicaSets and ReplicationControllers.
type kind struct {
	gvk                schema.GroupVersionKind
	name               string // of the loop
	queueMetricName    string // upstream's name of its queue; empty means name
	workers            int
	reportsTerminating bool // its status has the number of terminating pods
	informer           cache.SharedIndexInformer
	get                func(namespace, name string) (*set, error)
	readLive           func(ctx context.Context, namespace, name string) (metav1.Object, error)
	matching           func(pod *corev1.Pod) []string // returns the keys of sets whose selector matches
	siblings           func(s *set) []types.UID       // returns the other sets with the same controller
	update             func(ctx context.Context, s *set, status appsv1.ReplicaSetStatus) error
}

func replicaSets(c loop.Context) kind {
	sets := informers.ReplicaSets(c.Informers)
	return kind{
		gvk: appsv1.SchemeGroupVersion.WithKind(
			"ReplicaSet"), name: "replicaset", workers: 8, reportsTerminating: true, informer: sets.Informer(),
		get: func(namespace, name string) (*set, error) {
			s, err := sets.Lister().ReplicaSets(namespace).Get(name)
			return &set{s, s}, err
		},
		readLive: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return c.Client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		matching: func(pod *corev1.Pod) (keys []string) {
			list, err := sets.Lister().GetPodReplicaSets(pod)
			if err != nil {
				return nil // no set matches
			}
			for _, s := range list {
				keys = append(keys, s.Namespace+"/"+s.Name)
			}
			return keys
		},
		siblings: func(s *set) (uids []types.UID) {
			controller := metav1.GetControllerOfNoCopy(s)
			if controller == nil {
				return nil
			}
			list, err := sets.Lister().ReplicaSets(s.Namespace).List(labels.Everything())
			if err != nil {
				return nil // the deletion order is not worth failing for
			}
			for _, other := range list {
				if ref := metav1.GetControllerOfNoCopy(other); ref != nil && ref.UID == controller.UID &&
					other.UID != s.UID {
					uids = append(uids, other.UID)
				}
			}
			return uids
		},
		update: func(ctx context.Context, s *set, status appsv1.ReplicaSetStatus) error {
			updated := s.DeepCopy()
			updated.Status = status
			_, err := c.Client.AppsV1().ReplicaSets(s.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
			return err
		},
	}
}

func replicationControllers(c loop.Context) kind {
	list := informers.ReplicationControllers(c.Informers)
	return kind{
		gvk: corev1.SchemeGroupVersion.WithKind(
			"ReplicationController",
		), name: "replicationcontroller", queueMetricName: "replicationmanager", workers: 4, informer: list.Informer(),
		get: func(namespace, name string) (*set, error) {
			r, err := list.Lister().ReplicationControllers(namespace).Get(name)
			if err != nil {
				return nil, err
			}
			return &set{asReplicaSet(r), r}, nil
		},
		readLive: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return c.Client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		matching: func(pod *corev1.Pod) (keys []string) {
			matching, err := list.Lister().GetPodControllers(pod)
			if err != nil {
				return nil // no controller matches
			}
			for _, r := range matching {
				keys = append(keys, r.Namespace+"/"+r.Name)
			}
			return keys
		},
		siblings: func(*set) []types.UID { return nil },
		update: func(ctx context.Context, s *set, status appsv1.ReplicaSetStatus) error {
			updated := s.object.(*corev1.ReplicationController).DeepCopy()
			updated.Status = toReplicationControllerStatus(status)
			_, err := c.Client.CoreV1().
				ReplicationControllers(s.Namespace).
				UpdateStatus(ctx, updated, metav1.UpdateOptions{})
			return err
		},
	}
}

// asReplicaSet converts a ReplicationController to a ReplicaSet. An empty selector defaults to the labels of the
// template. If there are none either, nothing matches.
func asReplicaSet(r *corev1.ReplicationController) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{ObjectMeta: r.ObjectMeta}
	s.Spec.Replicas, s.Spec.MinReadySeconds = r.Spec.Replicas, r.Spec.MinReadySeconds
	if len(r.Spec.Selector) > 0 {
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: r.Spec.Selector}
	}
	if r.Spec.Template != nil {
		s.Spec.Template = *r.Spec.Template
	}
	s.Status = appsv1.ReplicaSetStatus{
		Replicas: r.Status.Replicas, FullyLabeledReplicas: r.Status.FullyLabeledReplicas,
		ReadyReplicas:     r.Status.ReadyReplicas,
		AvailableReplicas: r.Status.AvailableReplicas, ObservedGeneration: r.Status.ObservedGeneration,
	}
	for _, c := range r.Status.Conditions {
		s.Status.Conditions = append(
			s.Status.Conditions,
			appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message},
		)
	}
	return s
}

// toReplicationControllerStatus converts a status to that of a ReplicationController, which has no number of
// terminating pods.
func toReplicationControllerStatus(s appsv1.ReplicaSetStatus) corev1.ReplicationControllerStatus {
	status := corev1.ReplicationControllerStatus{
		Replicas:             s.Replicas,
		FullyLabeledReplicas: s.FullyLabeledReplicas,
		ReadyReplicas:        s.ReadyReplicas,
		AvailableReplicas:    s.AvailableReplicas,
		ObservedGeneration:   s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		status.Conditions = append(
			status.Conditions,
			corev1.ReplicationControllerCondition{
				Type:               corev1.ReplicationControllerConditionType(c.Type),
				Status:             c.Status,
				LastTransitionTime: c.LastTransitionTime,
				Reason:             c.Reason,
				Message:            c.Message,
			},
		)
	}
	return status
}
