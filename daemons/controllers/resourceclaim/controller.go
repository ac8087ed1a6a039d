// Package resourceclaim creates ResourceClaims from the templates that pods name, and cleans up after pods. It removes
// the reservations of pods that are gone or have ended, frees their devices, and deletes claims that were created for
// such a pod. The scheduler allocates devices.
package resourceclaim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	byOwner   cache.Indexer
	templates resourcelisters.ResourceClaimTemplateLister
	created   *prometheus.CounterVec
	recent    sync.Map // claims that were created and are not in the cache yet, by the pod's UID and entry
}

// Prefixes of the queue's keys, for pods and claims.
const (
	podKey   = "pod:"
	claimKey = "claim:"
)

// ownerPodIndex indexes claims by the UID of the pod that controls them.
const ownerPodIndex = "pod"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	pods, claims, templates := informers.Pods(c.Informers), informers.ResourceClaims(
		c.Informers,
	), informers.ResourceClaimTemplates(c.Informers)
	r := &controller{
		Context:   c,
		pods:      pods.Lister(),
		claims:    claims.Lister(),
		byOwner:   claims.Informer().GetIndexer(),
		templates: templates.Lister(),
	}
	r.created = c.Counter("dynamic_resource_allocation_resourceclaim_creates_total",
		"ResourceClaims that were to be created.", "status", "admin_access")
	c.RegisterMetrics(claimCollector{claims.Lister()})
	_ = claims.Informer().AddIndexers(cache.Indexers{ownerPodIndex: func(obj any) ([]string, error) {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
			if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.Kind == "Pod" {
				return []string{string(ref.UID)}, nil
			}
		}
		return nil, nil
	}})
	r.Loop = loop.Loop{
		Name:            "resourceclaim",
		QueueMetricName: "resource_claim",
		Context:         c,
		Sync:            r.sync,
		Synced: []cache.InformerSynced{
			pods.Informer().HasSynced, claims.Informer().HasSynced, templates.Informer().HasSynced},
	}
	c.OnChange(pods.Informer(), func(old, obj any) {
		pod, ok := obj.(*corev1.Pod)
		if obj == nil {
			pod, ok = old.(*corev1.Pod)
		}
		if !ok || len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
			return
		}
		if obj != nil && !hasEnded(pod) {
			r.Queue().Add(podKey + pod.Namespace + "/" + pod.Name)
			return
		}
		for i := range pod.Spec.ResourceClaims {
			if name, made := claimOf(pod, &pod.Spec.ResourceClaims[i]); made && name != "" {
				r.Queue().Add(claimKey + pod.Namespace + "/" + name)
			}
		}
		r.enqueueClaimsOf(pod)
	})
	c.OnChange(claims.Informer(), func(old, obj any) {
		claim, ok := obj.(*resourcev1.ResourceClaim)
		if obj == nil {
			if claim, ok = old.(*resourcev1.ResourceClaim); ok {
				r.deleteRecent(claim)
				if key := loop.OwnerKey(claim, "Pod"); key != "" {
					r.Queue().Add(podKey + key) // a claim that was deleted while its pod waits is created again
				}
			}
			return
		}
		if ok {
			r.deleteRecent(claim)
			r.Queue().Add(claimKey + claim.Namespace + "/" + claim.Name)
		}
	})
	c.OnChange(templates.Informer(), func(old, obj any) {
		if t, ok := obj.(*resourcev1.ResourceClaimTemplate); ok && old == nil {
			r.enqueueWaitingPods(t)
		}
	})
	return r
}

// enqueueClaimsOf queues the claims that were created for a pod.
func (r *controller) enqueueClaimsOf(pod *corev1.Pod) {
	list, err := r.byOwner.ByIndex(ownerPodIndex, string(pod.UID))
	if err != nil {
		return
	}
	for _, obj := range list {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
			r.Queue().Add(claimKey + claim.Namespace + "/" + claim.Name)
		}
	}
}

func (r *controller) sync(ctx context.Context, key string) error {
	what, rest, _ := strings.Cut(key, ":")
	namespace, name, err := cache.SplitMetaNamespaceKey(rest)
	if err != nil {
		return nil
	}
	if what+":" == claimKey {
		claim, err := r.claims.ResourceClaims(namespace).Get(name)
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		return r.syncClaim(ctx, claim)
	}
	pod, err := r.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if hasEnded(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	return r.syncPod(ctx, pod)
}

// hasEnded reports whether a pod will not run any more: it has ended, or was deleted before it had a node.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// claimOf returns the name of the claim for an entry of a pod. made is false if it does not exist yet. The name is
// empty if the entry needs no claim.
func claimOf(pod *corev1.Pod, c *corev1.PodResourceClaim) (name string, made bool) {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName, true
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			if s.ResourceClaimName != nil {
				name = *s.ResourceClaimName
			}
			return name, true
		}
	}
	return "", false
}

// syncPod creates a pod's claims from templates and writes their names to its status. If the pod got its node without
// the scheduler, it also reserves its claims.
func (r *controller) syncPod(ctx context.Context, pod *corev1.Pod) error {
	var made []corev1.PodResourceClaimStatus
	changed := false
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		if c.ResourceClaimTemplateName == nil {
			continue
		}
		name, ok := claimOf(pod, c)
		if ok && (name == "" || r.ownsClaim(pod, name)) {
			made = append(made, statusOf(c.Name, name))
			continue
		}
		claim, err := r.ensureClaim(ctx, pod, c)
		if err != nil {
			r.Events.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v",
				c.Name, err)
			return err
		}
		made, changed = append(made, statusOf(c.Name, claim.Name)), true
	}
	if changed {
		if _, err := loop.PatchPodStatus(ctx, r.Client, pod,
			map[string]any{"resourceClaimStatuses": made}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("write the claims into the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	return r.reserve(ctx, pod, made)
}

func statusOf(entry, name string) corev1.PodResourceClaimStatus {
	s := corev1.PodResourceClaimStatus{Name: entry}
	if name != "" {
		s.ResourceClaimName = &name
	}
	return s
}

// ownsClaim reports whether a claim exists and is controlled by the pod.
func (r *controller) ownsClaim(pod *corev1.Pod, name string) bool {
	claim, err := r.claims.ResourceClaims(pod.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		for i := range pod.Spec.ResourceClaims {
			if made := r.existingClaim(pod, pod.Spec.ResourceClaims[i].Name); made != nil && made.Name == name {
				return true // the cache does not show it yet
			}
		}
	}
	return err == nil && metav1.IsControlledBy(claim, pod)
}

// reserve reserves allocated claims for a pod that got its node without the scheduler, as far as possible.
func (r *controller) reserve(ctx context.Context, pod *corev1.Pod, made []corev1.PodResourceClaimStatus) error {
	updated := pod.DeepCopy()
	updated.Status.ResourceClaimStatuses = made
	var errs []error
	for i := range pod.Spec.ResourceClaims {
		name, ok := claimOf(updated, &pod.Spec.ResourceClaims[i])
		if !ok || name == "" {
			continue
		}
		claim, err := r.claims.ResourceClaims(pod.Namespace).Get(name)
		if err != nil || claim.Status.Allocation == nil || claim.DeletionTimestamp != nil ||
			isReservedFor(claim, pod) ||
			len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize {
			continue
		}
		updated := claim.DeepCopy()
		updated.Status.ReservedFor = append(updated.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		if _, err := r.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, updated,
			metav1.UpdateOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("reserve claim %s/%s for pod %s: %w", claim.Namespace, claim.Name, pod.Name,
				err))
		}
	}
	return errors.Join(errs...)
}

func isReservedFor(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	for _, u := range claim.Status.ReservedFor {
		if u.UID == pod.UID {
			return true
		}
	}
	return false
}
