package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/cache"

	"clusterctl/kube/kubernetes"
)

// PodIndex finds the pods of an owner without scanning every pod.
type PodIndex struct{ indexer cache.Indexer }

const ownerIndex = "controller"

// PodsByOwner adds the index to the pod informer, which must not be started yet.
func PodsByOwner(informer cache.SharedIndexInformer) PodIndex {
	// Several controllers add it. Further attempts return an error and are harmless.
	_ = informer.AddIndexers(cache.Indexers{ownerIndex: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{"orphan/" + pod.Namespace}, nil
	}})
	return PodIndex{informer.GetIndexer()}
}

// Of returns the pods whose controller has this UID.
func (x PodIndex) Of(uid types.UID) []*corev1.Pod { return x.ofKey(string(uid)) }

// Orphans returns the pods of a namespace that have no controller.
func (x PodIndex) Orphans(namespace string) []*corev1.Pod { return x.ofKey("orphan/" + namespace) }

// In returns the pods of a namespace.
func (x PodIndex) In(namespace string) []*corev1.Pod { return x.find(cache.NamespaceIndex, namespace) }

func (x PodIndex) ofKey(value string) []*corev1.Pod { return x.find(ownerIndex, value) }

func (x PodIndex) find(index, value string) []*corev1.Pod {
	objs, err := x.indexer.ByIndex(index, value)
	if err != nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

// Pods finds pods by their controller.
type Pods interface {
	Of(owner types.UID) []*corev1.Pod
	Orphans(namespace string) []*corev1.Pod
}

// ClaimPods returns the pods that belong to owner: its own that match its selector, and matching orphans, which it
// adopts. Own pods that no longer match are released. Adopted pods get finalizers. fresh reads the owner from the
// server, so that a deleted owner adopts nothing.
func ClaimPods(
	ctx context.Context,
	client kubernetes.Interface,
	index Pods,
	owner metav1.Object,
	kind schema.GroupVersionKind,
	selector labels.Selector,
	finalizers []string,
	fresh func(context.Context) (metav1.Object, error),
) ([]*corev1.Pod, error) {
	var claimed []*corev1.Pod
	for _, pod := range index.Of(owner.GetUID()) {
		switch {
		case pod.Namespace != owner.GetNamespace():
		case selector.Matches(labels.Set(pod.Labels)):
			claimed = append(claimed, pod)
		case owner.GetDeletionTimestamp() == nil:
			if err := release(ctx, client, pod, owner); err != nil {
				return nil, err
			}
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return claimed, nil
	}
	checked := false
	for _, pod := range index.Orphans(owner.GetNamespace()) {
		if !selector.Matches(labels.Set(pod.Labels)) || pod.DeletionTimestamp != nil {
			continue
		}
		if !checked {
			if ok, err := canAdopt(ctx, owner, kind, fresh); !ok {
				return claimed, err
			}
			checked = true
		}
		adopted, err := adopt(ctx, client, pod, owner, kind, finalizers)
		if err != nil {
			return nil, err
		}
		if adopted != nil {
			claimed = append(claimed, adopted)
		}
	}
	return claimed, nil
}

// canAdopt reports whether the owner still exists on the server. Caches may not show yet that it was deleted.
func canAdopt(
	ctx context.Context,
	owner metav1.Object,
	kind schema.GroupVersionKind,
	fresh func(context.Context) (metav1.Object, error),
) (bool, error) {
	now, err := fresh(ctx)
	if err != nil {
		return false, fmt.Errorf("read %s %s/%s before adopting: %w", kind.Kind, owner.GetNamespace(),
			owner.GetName(), err)
	}
	return now.GetUID() == owner.GetUID() && now.GetDeletionTimestamp() == nil, nil
}

func adopt(
	ctx context.Context,
	client kubernetes.Interface,
	pod *corev1.Pod,
	owner metav1.Object,
	kind schema.GroupVersionKind,
	finalizers []string,
) (*corev1.Pod, error) {
	metadata := map[string]any{
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		"uid":             pod.UID,
	}
	if len(finalizers) > 0 {
		metadata["finalizers"] = finalizers // merged with the existing ones
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	adopted, err := client.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil, nil // deleted, or adopted by another owner
	}
	return adopted, err
}

func release(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, owner metav1.Object) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}}, "uid": pod.UID,
	}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// OwnerObject is an owner that is an API object, for events about it.
type OwnerObject interface {
	metav1.Object
	runtime.Object
}

// CreatePod creates a pod for owner and records an event. A pod with a generated name gets it here, so that the
// creation can be repeated if its answer is lost.
func CreatePod(ctx context.Context, c Context, owner OwnerObject, pod *corev1.Pod) error {
	if pod.Name == "" {
		pod.Name = pod.GenerateName[:min(len(pod.GenerateName), maxBaseLength)] + rand.String(randomLength)
	}
	pods := c.Client.CoreV1().Pods(owner.GetNamespace())
	var made *corev1.Pod
	tries := 0
	err := c.retryUntilKnown(ctx, func() (err error) {
		tries++
		made, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) || tries == 1 {
			return err
		}
		// An earlier attempt whose answer was lost may have created it.
		existing, getErr := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case getErr == nil && metav1.IsControlledBy(existing, owner):
			made, err = existing, nil
		case getErr != nil && !apierrors.IsNotFound(getErr):
			return outcomeUnreadable(getErr)
		}
		return err
	})
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Events.Eventf(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		}
		return err
	}
	c.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", made.Name)
	return nil
}

// Lengths of generated names, as the API server makes them: short enough for a host name.
const (
	randomLength  = 5
	maxBaseLength = 63 - randomLength
)

// IfUnchanged returns options that make a deletion fail if the object has changed since o was read.
func IfUnchanged(o metav1.Object) metav1.DeleteOptions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// DeletePod deletes a pod of owner, unless it has changed since it was read, and records an event. If the pod is gone
// already or has changed (ready, finished, released), it returns an error. The caller must then stop expecting the
// deletion and sync again.
func DeletePod(ctx context.Context, c Context, owner OwnerObject, pod *corev1.Pod) error {
	err := DeleteIfUnchanged(ctx, c, pod)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err
	}
	if err != nil {
		c.Events.Eventf(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return err
	}
	c.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
	return nil
}

// DeleteIfUnchanged deletes a pod unless it has changed since it was read.
func DeleteIfUnchanged(ctx context.Context, c Context, pod *corev1.Pod) error {
	return c.retryUntilKnown(ctx, func() error { return deleteIfUnchanged(ctx, c, pod) })
}

func deleteIfUnchanged(ctx context.Context, c Context, pod *corev1.Pod) error {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	err := pods.Delete(ctx, pod.Name, IfUnchanged(pod))
	if apierrors.IsConflict(err) {
		// Most changes do not matter here, and a pod that changes all the time must be deleted too.
		live, getErr := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if getErr != nil {
			return outcomeUnreadable(getErr)
		}
		if live.UID == pod.UID && live.DeletionTimestamp != nil {
			return nil // it is being deleted already, perhaps by an attempt whose answer was lost
		}
		if !isSameForDeletion(pod, live) {
			return err
		}
		err = pods.Delete(ctx, pod.Name, IfUnchanged(live))
	}
	return err
}

// isSameForDeletion reports whether everything that pods are chosen for deletion by is unchanged.
func isSameForDeletion(old, updated *corev1.Pod) bool {
	readyBefore, _ := IsReady(old)
	readyNow, _ := IsReady(updated)
	before, now := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(updated)
	return old.UID == updated.UID && readyBefore == readyNow && old.Status.Phase == updated.Status.Phase &&
		old.Spec.NodeName == updated.Spec.NodeName &&
		(old.DeletionTimestamp == nil) == (updated.DeletionTimestamp == nil) &&
		before != nil && now != nil && before.UID == now.UID && maps.Equal(old.Labels, updated.Labels) &&
		deletionCost(old) == deletionCost(updated)
}
