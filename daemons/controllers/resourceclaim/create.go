package resourceclaim

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// entryAnnotation names the entry of the pod's spec.resourceClaims for which a claim was created.
const entryAnnotation = resourcev1.PodResourceClaimAnnotation

// ensureClaim returns the claim for an entry of a pod. It returns one that was created before and is not in the pod's
// status yet, or creates one.
func (r *controller) ensureClaim(
	ctx context.Context,
	pod *corev1.Pod,
	c *corev1.PodResourceClaim,
) (*resourcev1.ResourceClaim, error) {
	if found := r.existingClaim(pod, c.Name); found != nil {
		return found, nil
	}
	template, err := r.templates.ResourceClaimTemplates(pod.Namespace).Get(*c.ResourceClaimTemplateName)
	if err != nil {
		return nil, fmt.Errorf("resource claim template %q: %w", *c.ResourceClaimTemplateName, err)
	}
	wanted := NewClaim(pod, c, template)
	claim, err := r.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	status := "success"
	if err != nil {
		status = "failure"
	}
	r.created.WithLabelValues(status, strconv.FormatBool(hasAdminAccess(wanted))).Inc()
	if err != nil {
		return nil, fmt.Errorf("create ResourceClaim: %w", err)
	}
	r.recent.Store(entryOf(pod.UID, c.Name), claim)
	return claim, nil
}

// existingClaim returns the existing claim for an entry of a pod, also if the cache does not show it yet.
func (r *controller) existingClaim(pod *corev1.Pod, entry string) *resourcev1.ResourceClaim {
	list, err := r.byOwner.ByIndex(ownerPodIndex, string(pod.UID))
	if err != nil {
		return nil
	}
	for _, obj := range list {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok && claim.Annotations[entryAnnotation] == entry &&
			claim.DeletionTimestamp == nil {
			return claim
		}
	}
	if claim, ok := r.recent.Load(entryOf(pod.UID, entry)); ok {
		return claim.(*resourcev1.ResourceClaim)
	}
	return nil
}

func entryOf(uid types.UID, entry string) string { return string(uid) + "/" + entry }

// deleteRecent removes a claim from recent, because the watch has shown it or its deletion.
func (r *controller) deleteRecent(claim *resourcev1.ResourceClaim) {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil {
		r.recent.Delete(entryOf(ref.UID, claim.Annotations[entryAnnotation]))
	}
}

// NewClaim returns the claim for an entry of a pod, built from its template.
func NewClaim(
	pod *corev1.Pod,
	c *corev1.PodResourceClaim,
	template *resourcev1.ResourceClaimTemplate,
) *resourcev1.ResourceClaim {
	annotations := maps.Clone(template.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[entryAnnotation] = c.Name
	owner := metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
	owner.BlockOwnerDeletion = ptr.To(true)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: pod.Name + "-" + c.Name + "-",
			Labels: maps.Clone(template.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
}

// enqueueWaitingPods queues the pods that wait for a template that now exists.
func (r *controller) enqueueWaitingPods(t *resourcev1.ResourceClaimTemplate) {
	pods, err := r.pods.Pods(t.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, pod := range pods {
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimTemplateName != nil && *c.ResourceClaimTemplateName == t.Name {
				r.Queue().Add(podKey + pod.Namespace + "/" + pod.Name)
			}
		}
	}
}
