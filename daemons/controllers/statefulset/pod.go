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

// ordinal is a pod's number in a set, from its name: SET-NUMBER.
func ordinal(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	text, ok := strings.CutPrefix(pod.Name, set.Name+"-")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

// first is the number of a set's first pod.
func first(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func replicas(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// newPod is a set's pod of a number, from a revision's template.
func newPod(set *appsv1.StatefulSet, n int, of revision) *corev1.Pod {
	pod := loop.PodFromTemplate(of.template, set, kind)
	pod.GenerateName, pod.Name = "", fmt.Sprintf("%s-%d", set.Name, n)
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetRevisionLabel] = of.name
	identify(set, pod, n)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	attach(set, pod, n)
	return pod
}

// identify gives a pod the labels that say which one it is.
func identify(set *appsv1.StatefulSet, pod *corev1.Pod, n int) {
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(n)
}

// identified reports whether a pod has them.
func identified(pod *corev1.Pod, n int) bool {
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name && pod.Labels[appsv1.PodIndexLabel] == strconv.Itoa(n)
}

// attach has a pod's volumes of the claim templates' names be its claims, in place of what the template says of them.
func attach(set *appsv1.StatefulSet, pod *corev1.Pod, n int) {
	var volumes []corev1.Volume
	for _, t := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, &t, n)}}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(
			set.Spec.VolumeClaimTemplates,
			func(t corev1.PersistentVolumeClaim) bool { return t.Name == v.Name },
		) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, n int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, set.Name, n)
}

// claims are those of a pod.
func claims(set *appsv1.StatefulSet, n int) (list []*corev1.PersistentVolumeClaim) {
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

// deletion says when claims are deleted by the retention policy.
type deletion struct{ whenDeleted, whenScaled bool }

func deleted(set *appsv1.StatefulSet) deletion {
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return deletion{}
	}
	return deletion{policy.WhenDeleted == remove, policy.WhenScaled == remove}
}

// owners returns the owner references that the retention policy asks for. A claim to be deleted with the set is owned
// by the set; a claim to be deleted when the set shrinks is owned by its pod once that is too many. A claim that
// another controller, or a former set or pod of the same name, owns is left to it, which is foreign where there is a
// policy that is ignored for it.
func owners(
	set *appsv1.StatefulSet,
	claim *corev1.PersistentVolumeClaim,
	pod *corev1.Pod,
	stays bool,
) (refs []metav1.OwnerReference, changed, foreign bool) {
	policy := deleted(set)
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
		// References to this set and pod are removed. Those to a former one stay, so that the claim is deleted with it.
		refs = slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return refersTo(ref, kind, set) && ref.UID == set.UID || refersTo(ref, podKind, pod) && ref.UID == pod.UID
		})
	case policy.whenScaled && !stays:
		refs = append(refs, *metav1.NewControllerRef(pod, podKind))
	case policy.whenDeleted:
		refs = append(refs, *metav1.NewControllerRef(set, kind))
	}
	return refs, !apiequality.Semantic.DeepEqual(refs, claim.OwnerReferences), foreign && policy != deletion{}
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func refersTo(ref metav1.OwnerReference, kind schema.GroupVersionKind, o metav1.Object) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == kind.Group && ref.Kind == kind.Kind && ref.Name == o.GetName()
}

// ofFormerPod reports whether a former pod of the same name owns a claim. It will be deleted: a new pod that used it
// would lose its data.
func ofFormerPod(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(
		claim.OwnerReferences,
		func(ref metav1.OwnerReference) bool { return refersTo(ref, podKind, pod) && ref.UID != pod.UID },
	)
}
