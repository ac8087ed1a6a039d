package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/controllers/loop"
)

// ordinalOf returns a pod's number from its name, which has the form SET-NUMBER. It reports false for other names.
func ordinalOf(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	text, ok := strings.CutPrefix(pod.Name, set.Name+"-")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

// firstOrdinal returns the ordinal of a set's first pod.
func firstOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func replicasOrDefault(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// newPod returns the set's pod with ordinal n, built from a revision's template.
func newPod(set *appsv1.StatefulSet, n int, of revision) *corev1.Pod {
	pod := loop.PodFromTemplate(of.template, set, kind)
	pod.GenerateName, pod.Name = "", fmt.Sprintf("%s-%d", set.Name, n)
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetRevisionLabel] = of.name
	setIdentity(set, pod, n)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	attachClaims(set, pod, n)
	return pod
}

// setIdentity sets the labels that identify a pod within its set.
func setIdentity(set *appsv1.StatefulSet, pod *corev1.Pod, n int) {
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(n)
}

// hasIdentity reports whether a pod has the labels that identify sets.
func hasIdentity(pod *corev1.Pod, n int) bool {
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name && pod.Labels[appsv1.PodIndexLabel] == strconv.Itoa(n)
}

// attachClaims makes the volumes that are named as claim templates use the pod's claims, in place of the volumes that
// the pod template has under those names.
func attachClaims(set *appsv1.StatefulSet, pod *corev1.Pod, n int) {
	var volumes []corev1.Volume
	for _, t := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, &t, n)}}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(set.Spec.VolumeClaimTemplates,
			func(t corev1.PersistentVolumeClaim) bool { return t.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, n int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, set.Name, n)
}

// claimsOf returns the claims of the pod with ordinal n.
func claimsOf(set *appsv1.StatefulSet, n int) (list []*corev1.PersistentVolumeClaim) {
	for i := range set.Spec.VolumeClaimTemplates {
		c := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		c.Name, c.Namespace = claimName(set, c, n), set.Namespace
		if set.Spec.Selector != nil {
			c.Labels = maps.Clone(c.Labels)
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			maps.Copy(c.Labels, set.Spec.Selector.MatchLabels)
		}
		list = append(list, c)
	}
	return list
}

// claimDeletion holds when the retention policy deletes claims.
type claimDeletion struct{ whenDeleted, whenScaled bool }

func claimDeletionOf(set *appsv1.StatefulSet) claimDeletion {
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return claimDeletion{}
	}
	return claimDeletion{policy.WhenDeleted == remove, policy.WhenScaled == remove}
}

// claimOwners returns the owner references that the retention policy asks for. A claim that is deleted with the set is
// owned by the set. A claim that is deleted when the set shrinks is owned by its pod once that pod is in excess. A
// claim that another controller owns keeps its owner, and so does one that a former set or pod of the same name owns.
// foreign reports that the policy is ignored for such a claim.
func claimOwners(
	set *appsv1.StatefulSet,
	claim *corev1.PersistentVolumeClaim,
	pod *corev1.Pod,
	stays bool,
) (refs []metav1.OwnerReference, changed, foreign bool) {
	policy := claimDeletionOf(set)
	for _, ref := range claim.OwnerReferences {
		switch {
		case refersTo(ref, kind, set):
			foreign = foreign || ref.UID != set.UID
		case refersTo(ref, podKind, pod):
			foreign = foreign || ref.UID != pod.UID
		default:
			foreign = foreign || ref.Controller != nil && *ref.Controller
			refs = append(refs, ref)
		}
	}
	switch {
	case foreign:
		// References to this set and pod are removed. References to a former set or pod stay, so that the claim is
		// deleted with it.
		refs = slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return refersTo(ref, kind, set) && ref.UID == set.UID || refersTo(ref, podKind, pod) && ref.UID == pod.UID
		})
	case policy.whenScaled && !stays:
		refs = append(refs, *metav1.NewControllerRef(pod, podKind))
	case policy.whenDeleted:
		refs = append(refs, *metav1.NewControllerRef(set, kind))
	}
	return refs, !apiequality.Semantic.DeepEqual(refs, claim.OwnerReferences), foreign && policy != claimDeletion{}
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func refersTo(ref metav1.OwnerReference, kind schema.GroupVersionKind, o metav1.Object) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == kind.Group && ref.Kind == kind.Kind && ref.Name == o.GetName()
}

// isOwnedByFormerPod reports whether a former pod of the same name owns a claim. Such a claim will be deleted, and a
// new pod that used it would lose its data.
func isOwnedByFormerPod(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.OwnerReferences,
		func(ref metav1.OwnerReference) bool { return refersTo(ref, podKind, pod) && ref.UID != pod.UID })
}
