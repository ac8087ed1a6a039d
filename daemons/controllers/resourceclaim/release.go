package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

// syncClaim removes finished pods from a claim's reservations. It frees the claim's devices if no user is left, and
// deletes the claim if it was created for a finished pod.
func (r *controller) syncClaim(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	var users []resourcev1.ResourceClaimConsumerReference
	for _, u := range claim.Status.ReservedFor {
		if u.APIGroup != "" || u.Resource != "pods" {
			users = append(users, u) // another component manages users of this kind
			continue
		}
		done, err := r.isDone(ctx, claim.Namespace, u.Name, u.UID)
		if err != nil {
			return err
		}
		if !done {
			users = append(users, u)
		}
	}
	owner, isOver := metav1.GetControllerOfNoCopy(claim), false
	if owner != nil && owner.Kind == "Pod" {
		var err error
		if isOver, err = r.isDone(ctx, claim.Namespace, owner.Name, owner.UID); err != nil {
			return err
		}
	}
	// A claim that users created loses its devices with its last user. Keeping them for the next pod would help no one.
	free := len(users) == 0 && claim.Status.Allocation != nil &&
		(len(claim.Status.ReservedFor) > 0 || isOver || claim.DeletionTimestamp != nil)
	if free || len(users) < len(claim.Status.ReservedFor) {
		updated := claim.DeepCopy()
		if updated.Status.ReservedFor = users; free {
			updated.Status.Allocation, updated.Status.Devices = nil, nil
		}
		written, err := r.Client.ResourceV1().
			ResourceClaims(claim.Namespace).
			UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("free claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		claim = written
	}
	if claim.Status.Allocation == nil && len(claim.Status.ReservedFor) == 0 &&
		slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		updated := claim.DeepCopy()
		updated.Finalizers = slices.DeleteFunc(updated.Finalizers,
			func(f string) bool { return f == resourcev1.Finalizer })
		written, err := r.Client.ResourceV1().
			ResourceClaims(claim.Namespace).
			Update(ctx, updated, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("let claim %s/%s go: %w", claim.Namespace, claim.Name, err)
		}
		claim = written
	}
	if isOver && len(users) == 0 && claim.DeletionTimestamp == nil {
		err := r.Client.ResourceV1().
			ResourceClaims(claim.Namespace).
			Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(claim.UID)}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

// isDone reports whether a pod will not use its claims any more. Only the API server can confirm that a pod does not
// exist, since the cache may not show it yet.
func (r *controller) isDone(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	pod, err := r.pods.Pods(namespace).Get(name)
	if err != nil || pod.UID != uid {
		if pod, err = r.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); loop.IsAbsent(err, "pods",
			name) {
			return true, nil
		} else if err != nil {
			return false, fmt.Errorf("look for pod %s/%s: %w", namespace, name, err)
		}
	}
	return pod.UID != uid || hasEnded(pod) && !hasRunningContainers(pod), nil
}

// hasRunningContainers reports whether a pod that has ended still has running containers. An evicted pod ends before
// its containers do.
func hasRunningContainers(pod *corev1.Pod) bool {
	return slices.ContainsFunc(
		append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...),
		func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil
		},
	)
}
