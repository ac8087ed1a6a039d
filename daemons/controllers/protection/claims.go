// Package protection removes the finalizers of deleted volumes and claims once they are not in use. The API server adds
// these finalizers at creation. For claims that stay, the package reports in their status whether a pod uses them.
package protection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds/storage"
)

type claims struct {
	loop.Context
	loop.Loop
	claims corelisters.PersistentVolumeClaimLister
	pods   cache.Indexer
}

// byClaim indexes pods by the claims that they name.
const byClaim = "by claims"

// NewClaims returns the controller for claims.
func NewClaims(c loop.Context) loop.Controller {
	all, pods := informers.PersistentVolumeClaims(c.Informers), informers.Pods(c.Informers).Informer()
	_ = pods.AddIndexers(cache.Indexers{byClaim: func(obj any) ([]string, error) { return claimsOf(obj), nil }})
	p := &claims{Context: c, claims: all.Lister(), pods: pods.GetIndexer()}
	p.Loop = loop.Loop{
		Name:            "pvc-protection",
		QueueMetricName: "pvcprotection",
		Context:         c,
		Sync:            p.sync,
		Synced:          []cache.InformerSynced{all.Informer().HasSynced, pods.HasSynced},
	}
	c.OnChange(all.Informer(), func(_, obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok &&
			(needsChange(claim, storage.ClaimProtection) || reportsUse(claim)) {
			p.Add(claim)
		}
	})
	c.OnChange(pods, func(old, obj any) {
		before, _ := old.(*corev1.Pod)
		after, _ := obj.(*corev1.Pod)
		if before != nil && after != nil && before.UID == after.UID && hasEnded(before) == hasEnded(after) &&
			hasShutDown(before) == hasShutDown(after) {
			return
		}
		for _, pod := range []*corev1.Pod{before, after} {
			for _, key := range claimsOf(pod) {
				p.Queue().Add(key)
			}
		}
	})
	return p
}

// claimsOf returns the claims that a pod names, as namespace/name.
func claimsOf(obj any) (keys []string) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if name := claimOf(pod, &pod.Spec.Volumes[i]); name != "" {
			keys = append(keys, pod.Namespace+"/"+name)
		}
	}
	return keys
}

// needsChange reports whether a finalizer has to be added or removed: an object that stays must have it, one that
// is being deleted must lose it.
func needsChange(obj metav1.Object, finalizer string) bool {
	return (obj.GetDeletionTimestamp() != nil) == slices.Contains(obj.GetFinalizers(), finalizer)
}

// claimOf returns the name of the claim behind a pod's volume, or "".
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// blocksDeletion reports whether a pod prevents the deletion of a claim. A pod without a node does not use it yet.
func blocksDeletion(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Spec.NodeName != "" && isNamed(pod, claim, !hasShutDown(pod))
}

// isNamed reports whether a pod names a claim. The claim of an ephemeral volume counts only for its own pod, and only
// when own is true.
func isNamed(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, own bool) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claimOf(pod, v) == claim.Name && (v.Ephemeral == nil || own && metav1.IsControlledBy(claim, pod)) {
			return true
		}
	}
	return false
}

// hasShutDown reports whether a deleted pod waits only for its finalizers: its kubelet has finished, or its deletion
// was forced. Such a pod may itself wait for its own claims to be deleted, so the claims must not wait for it.
func hasShutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (p *claims) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !needsChange(claim, storage.ClaimProtection) {
		return p.reportUse(ctx, claim)
	}
	if claim.DeletionTimestamp != nil {
		used, err := p.isUsed(ctx, claim)
		if err != nil || used {
			return err
		}
	}
	updated := claim.DeepCopy()
	updated.Finalizers = toggleFinalizer(updated.Finalizers, storage.ClaimProtection)
	if _, err := p.Client.CoreV1().PersistentVolumeClaims(namespace).Update(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("change the protection of claim %s: %w", key, err)
	}
	return nil
}

// isUsed reports whether a pod uses a claim. It asks the cache, and if that has no such pod, the API server: a pod may
// just have been scheduled.
func (p *claims) isUsed(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if isKnown, err := p.isUsedInCache(claim, blocksDeletion); err != nil || isKnown {
		return isKnown, err
	}
	live, err := p.Client.CoreV1().
		Pods(claim.Namespace).
		List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String()})
	if err != nil {
		return false, fmt.Errorf("look who uses claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return slices.ContainsFunc(live.Items, func(pod corev1.Pod) bool { return blocksDeletion(&pod, claim) }), nil
}

// isUsedInCache reports whether a pod in the cache uses a claim according to by.
func (p *claims) isUsedInCache(
	claim *corev1.PersistentVolumeClaim,
	by func(*corev1.Pod, *corev1.PersistentVolumeClaim) bool,
) (bool, error) {
	pods, err := p.pods.ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	return slices.ContainsFunc(pods, func(obj any) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && by(pod, claim)
	}), err
}

// toggleFinalizer adds a finalizer that is missing, or removes it if it is present.
func toggleFinalizer(finalizers []string, f string) []string {
	if slices.Contains(finalizers, f) {
		return slices.DeleteFunc(finalizers, func(current string) bool { return current == f })
	}
	return append(finalizers, f)
}
