package statefulset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
)

// act carries out a decision. It creates claims before the pod that uses them, and sets the owners of claims before it
// deletes a pod.
func (r *controller) act(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod, d Decision) error {
	if err := r.syncClaims(ctx, set, pods); err != nil {
		return err
	}
	still := func() bool {
		current, err := r.sets.StatefulSets(set.Namespace).Get(set.Name)
		return err == nil && loop.HasSameSpec(current, set)
	}
	create := func(ctx context.Context, i int) error { return r.create(ctx, set, d.Create[i]) }
	if _, err := loop.InBatches(ctx, len(d.Create), still, create); err != nil {
		return err
	}
	for _, pod := range d.Relabel {
		if !still() {
			return nil
		}
		if _, err := r.Client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
			r.Events.Eventf(set, corev1.EventTypeWarning, "FailedUpdate",
				"update Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
			return fmt.Errorf("mend pod %s: %w", pod.Name, err)
		}
		r.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulUpdate", "update Pod %s in StatefulSet %s successful",
			pod.Name, set.Name)
	}
	for _, pod := range d.Delete {
		if !still() {
			return nil
		}
		if err := r.remove(ctx, set, pod); err != nil {
			return err
		}
	}
	return nil
}

// syncClaims gives the claims of existing pods the owners that the retention policy asks for. It also creates claims
// that pending pods lack.
func (r *controller) syncClaims(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod) error {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	existing, condemned := splitExcess(set, pods)
	for _, o := range existing {
		for _, want := range claimsOf(set, o.ordinal) {
			if o.Status.Phase == corev1.PodPending && !o.isDeleting() {
				if err := r.ensureClaim(ctx, set, o.Pod, want); err != nil {
					return err
				}
			}
			if err := r.setClaimOwners(ctx, set, want.Name, o, true); err != nil {
				return err
			}
		}
	}
	for _, o := range condemned {
		for _, want := range claimsOf(set, o.ordinal) {
			if err := r.setClaimOwners(ctx, set, want.Name, o, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// setClaimOwners sets a claim's owner references as the retention policy asks. stays reports whether the pod is within
// the set's replicas.
func (r *controller) setClaimOwners(ctx context.Context, set *appsv1.StatefulSet, name string, o ordinalPod,
	stays bool) error {
	claim, err := r.claims.PersistentVolumeClaims(set.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		if stays || !claimDeletionOf(set).whenScaled {
			return nil
		}
		// The pod is about to be deleted, so this is the last chance to set its claim's owner. The cache may not show
		// the claim yet.
		claim, err = r.Client.CoreV1().PersistentVolumeClaims(set.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	refs, changed, foreign := claimOwners(set, claim, o.Pod, stays)
	if foreign && (changed || o.Status.Phase == corev1.PodPending) {
		r.Events.Eventf(set, corev1.EventTypeWarning, "ConflictingController", "PersistentVolumeClaim %s has a "+
			"conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this "+
			"claim", name)
	}
	if !changed || claim.DeletionTimestamp != nil {
		return nil
	}
	updated := claim.DeepCopy()
	updated.OwnerReferences = refs
	if _, err := r.Client.CoreV1().PersistentVolumeClaims(set.Namespace).Update(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		err = fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", name, err)
		if !apierrors.IsConflict(err) {
			r.Events.Eventf(set, corev1.EventTypeWarning, "FailedUpdate",
				"update Pod %s in StatefulSet %s failed error: %v", o.Name, set.Name, err)
		}
		return err
	}
	return nil
}

// ensureClaim creates a missing claim. A claim that is being deleted must disappear first: a pod that used it would
// lose its data.
func (r *controller) ensureClaim(
	ctx context.Context,
	set *appsv1.StatefulSet,
	pod *corev1.Pod,
	want *corev1.PersistentVolumeClaim,
) error {
	existing, err := r.claims.PersistentVolumeClaims(set.Namespace).Get(want.Name)
	switch {
	case err == nil && existing.DeletionTimestamp != nil:
		return fmt.Errorf("pvc %s is being deleted", want.Name)
	case err == nil && pod.UID == "" && isOwnedByFormerPod(existing, pod): // the pod does not exist yet
		return fmt.Errorf("pvc %s goes with a former pod %s", want.Name, pod.Name)
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	want.OwnerReferences, _, _ = claimOwners(set, want, pod, true)
	switch _, err = r.Client.CoreV1().PersistentVolumeClaims(set.Namespace).Create(ctx, want, metav1.CreateOptions{}); {
	case apierrors.IsAlreadyExists(err):
		live, err := r.Client.CoreV1().PersistentVolumeClaims(set.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		if err == nil && live.DeletionTimestamp != nil {
			err = fmt.Errorf("pvc %s is being deleted", want.Name)
		}
		return err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		r.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate",
			"create Claim %s for Pod %s in StatefulSet %s failed error: %v", want.Name, pod.Name, set.Name, err)
		return fmt.Errorf("create claim %s: %w", want.Name, err)
	}
	r.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success",
		want.Name, pod.Name, set.Name)
	return nil
}

func (r *controller) create(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	n, _ := ordinalOf(set, pod)
	for _, want := range claimsOf(set, n) {
		if err := r.ensureClaim(ctx, set, pod, want); err != nil {
			if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				r.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate",
					"create Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
			}
			return err
		}
	}
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case apierrors.IsAlreadyExists(err): // the cache does not show it yet, or another owner's claim has the name
		live, getErr := r.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if getErr != nil || metav1.IsControlledBy(live, set) {
			return err
		}
		fallthrough
	case err != nil:
		r.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate",
			"create Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	r.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful",
		pod.Name, set.Name)
	return nil
}

// remove deletes a pod unless it has changed since the decision. The next sync handles a changed pod.
func (r *controller) remove(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	err := loop.DeleteIfUnchanged(ctx, r.Context, pod)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return err
	case err != nil:
		r.Events.Eventf(set, corev1.EventTypeWarning, "FailedDelete",
			"delete Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	r.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful",
		pod.Name, set.Name)
	return nil
}
