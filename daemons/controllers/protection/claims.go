// Package protection lets go of volumes and claims that are deleted, once nobody uses them:
// the API server has them held by a finalizer from their beginning.
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

	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds"
)

type claims struct {
	loop.Context
	loop.Loop
	claims corelisters.PersistentVolumeClaimLister
	pods   loop.PodIndex
}

// NewClaims returns the controller of claims.
func NewClaims(c loop.Context) loop.Controller {
	all, pods := c.Informers.Core().V1().PersistentVolumeClaims(), c.Informers.Core().V1().Pods()
	p := &claims{Context: c, claims: all.Lister(), pods: loop.PodsByOwner(pods.Informer())}
	p.Loop = loop.Loop{Name: "pvc-protection", Counted: "pvcprotection", Context: c, Sync: p.sync, Synced: []cache.InformerSynced{all.Informer().HasSynced, pods.Informer().HasSynced}}
	c.OnChange(all.Informer(), func(_, obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && due(claim, kinds.ClaimProtection) {
			p.Add(claim)
		}
	})
	c.OnChange(pods.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Pod)
		after, _ := obj.(*corev1.Pod)
		if before != nil && (after == nil || ended(after) && !ended(before)) {
			p.freed(before)
		}
	})
	return p
}

// due says whether there is something to do about an object: it goes and is held, or it stays
// and is not, since it is older than this protection.
func due(obj metav1.Object, finalizer string) bool {
	return (obj.GetDeletionTimestamp() != nil) == slices.Contains(obj.GetFinalizers(), finalizer)
}

// freed looks at the claims that a pod used.
func (p *claims) freed(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		name := claimOf(pod, &pod.Spec.Volumes[i])
		if claim, err := p.claims.PersistentVolumeClaims(pod.Namespace).Get(name); name != "" && err == nil && due(claim, kinds.ClaimProtection) {
			p.Add(claim)
		}
	}
}

// claimOf is the name of the claim that a volume of a pod is, or "".
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// uses says whether a pod keeps a claim from going. One without a node has nothing of it yet.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claimOf(pod, v) != claim.Name {
			continue
		}
		// What was made for a pod alone goes with it, and with its end.
		if v.Ephemeral == nil || !ended(pod) && metav1.IsControlledBy(claim, pod) {
			return true
		}
	}
	return false
}

func ended(pod *corev1.Pod) bool {
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
	if !due(claim, kinds.ClaimProtection) {
		return nil
	}
	if claim.DeletionTimestamp != nil {
		used, err := p.used(ctx, claim)
		if err != nil || used {
			return err
		}
	}
	updated := claim.DeepCopy()
	updated.Finalizers = turned(updated.Finalizers, kinds.ClaimProtection)
	if _, err := p.Client.CoreV1().PersistentVolumeClaims(namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change the protection of claim %s: %w", key, err)
	}
	return nil
}

// used asks the cache, and the server before it believes that nobody is left: a pod may just
// have been given a node.
func (p *claims) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if slices.ContainsFunc(p.pods.In(claim.Namespace), func(pod *corev1.Pod) bool { return uses(pod, claim) }) {
		return true, nil
	}
	live, err := p.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String()})
	if err != nil {
		return false, fmt.Errorf("look who uses claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return slices.ContainsFunc(live.Items, func(pod corev1.Pod) bool { return uses(&pod, claim) }), nil
}

// turned adds a finalizer that is not there and takes away one that is.
func turned(finalizers []string, f string) []string {
	if slices.Contains(finalizers, f) {
		return slices.DeleteFunc(finalizers, func(have string) bool { return have == f })
	}
	return append(finalizers, f)
}
