package statefulset

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const keep, drop = appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	appsv1.DeletePersistentVolumeClaimRetentionPolicyType

// withData returns a change that adds a claim template and a retention policy to a set.
func withData(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.OnDeleteStatefulSetStrategyType,
		} // updates do not matter here
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted,
			WhenScaled:  whenScaled,
		}
	}
}

func dataOf(name string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "data-" + name, OwnerReferences: owners},
	}
}

// ownersOf returns the kinds and UIDs of a claim's owners.
func ownersOf(claim *corev1.PersistentVolumeClaim) string {
	var words []string
	for _, ref := range claim.OwnerReferences {
		words = append(words, ref.Kind+"/"+string(ref.UID))
	}
	return strings.Join(words, " ")
}

// A claim's owners follow the present policy, whatever the policy was when the claim was created, and whatever happened
// to its pod.
func TestClaimsFollowThePolicyOfNow(t *testing.T) {
	set := web(1, nil)
	bySet := *metav1.NewControllerRef(set, kind)
	byPod := func(uid types.UID) metav1.OwnerReference {
		return *metav1.NewControllerRef(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: uid}}, podKind)
	}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}
	for _, row := range []struct {
		name                    string
		whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType
		replicas                int32
		pods                    string
		has                     []metav1.OwnerReference
		want                    string
	}{
		{"kept from now on", keep, keep, 2, "0 1", []metav1.OwnerReference{bySet}, ""},
		{"kept from now on, too many", keep, keep, 1, "0 1", []metav1.OwnerReference{byPod("1")}, ""},
		{"deleted with the set from now on", drop, keep, 2, "0 1", nil, "StatefulSet/set"},
		{"deleted with the set from now on, too many", drop, keep, 1, "0 1", []metav1.OwnerReference{byPod("1")},
			"StatefulSet/set"},
		{"deleted when it shrinks from now on", keep, drop, 2, "0 1", []metav1.OwnerReference{bySet}, ""},
		{"deleted when it shrinks, too many", keep, drop, 1, "0 1", []metav1.OwnerReference{bySet}, "Pod/1"},
		{"deleted both ways, too many", drop, drop, 1, "0 1", []metav1.OwnerReference{bySet}, "Pod/1"},
		{"deleted both ways, there", drop, drop, 2, "0 1", []metav1.OwnerReference{byPod("1")}, "StatefulSet/set"},
		{"too many, and deleted by somebody meanwhile", drop, drop, 1, "0 1x", []metav1.OwnerReference{bySet},
			"Pod/1x"},
		{"kept after all while its pod goes", keep, keep, 1, "0 1x", []metav1.OwnerReference{byPod("1x")}, ""},
		{"wanted again while its pod goes", keep, drop, 2, "0 1x", []metav1.OwnerReference{byPod("1x")}, ""},
		{"somebody else's too", drop, drop, 1, "0 1", []metav1.OwnerReference{other, bySet}, "ConfigMap/c Pod/1"},
	} {
		set := web(row.replicas, withData(row.whenDeleted, row.whenScaled))
		r, client, _ := made(t, set, podsOf(set, row.pods), dataOf("web-0"), dataOf("web-1", row.has...))
		if err := r.sync(t.Context(), "n/web"); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		claim, err := client.CoreV1().PersistentVolumeClaims("n").Get(t.Context(), "data-web-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := ownersOf(claim); got != row.want {
			t.Errorf("%s: the claim is of %q, want %q", row.name, got, row.want)
		}
	}
}

// If spec.ordinals.start is raised, pods below it are in excess. The policy for scaling applies to their claims.
func TestClaimsOfPodsBelowTheFirstNumberGoWithThem(t *testing.T) {
	set := web(2, func(s *appsv1.StatefulSet) {
		withData(keep, drop)(s)
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	})
	r, client, _ := made(t, set, podsOf(set, "0 1 2"), dataOf("web-0"), dataOf("web-1"), dataOf("web-2"))
	if err := r.sync(t.Context(), "n/web"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"data-web-0": "Pod/0", "data-web-1": "", "data-web-2": ""} {
		claim, err := client.CoreV1().PersistentVolumeClaims("n").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := ownersOf(claim); got != want {
			t.Errorf("%s is of %q, want %q", name, got, want)
		}
	}
	if _, err := client.CoreV1().Pods("n").Get(t.Context(), "web-0", metav1.GetOptions{}); err == nil {
		t.Error("the pod below the first number is still there")
	}
}

func TestAClaimThatTheCacheDoesNotHaveGoesWithItsPodAllTheSame(t *testing.T) {
	set := web(1, withData(keep, drop))
	r, client, _ := made(t, set, podsOf(set, "0 1"), dataOf("web-0"))
	if err := client.Tracker().Add(runtime.Object(dataOf("web-1"))); err != nil {
		t.Fatal(err)
	}
	if err := r.sync(t.Context(), "n/web"); err != nil {
		t.Fatal(err)
	}
	claim, err := client.CoreV1().PersistentVolumeClaims("n").Get(t.Context(), "data-web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ownersOf(claim); got != "Pod/1" {
		t.Errorf("it is of %q", got)
	}
}

func TestWhyAClaimIsInTheWayIsToldInEvents(t *testing.T) {
	going := dataOf("web-0")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: now}, []string{"kubernetes.io/pvc-protection"}
	stranger := metav1.OwnerReference{
		APIVersion: "example.com/v1",
		Kind:       "Keeper",
		Name:       "k",
		UID:        "k",
		Controller: ptr.To(true),
	}
	bySet := *metav1.NewControllerRef(web(1, nil), kind)
	bySet.Controller = nil
	pending := func(set *appsv1.StatefulSet) []*corev1.Pod {
		pods := podsOf(set, "0!")
		pods[0].Status.Phase = corev1.PodPending
		return pods
	}
	conflict := "Warning ConflictingController PersistentVolumeClaim data-web-0 has a conflicting OwnerReference " +
		"that acts as a manging controller, the retention policy is ignored for this claim"
	for name, row := range map[string]struct {
		policy func(*appsv1.StatefulSet)
		pods   func(*appsv1.StatefulSet) []*corev1.Pod
		claim  *corev1.PersistentVolumeClaim
		want   []string
		fails  bool
	}{
		"it is being deleted": {withData(keep, keep), nil, going,
			[]string{"Warning FailedCreate create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being " +
				"deleted"}, true},
		"it is another's, and its pod waits": {withData(drop, keep), pending, dataOf("web-0", stranger),
			[]string{conflict}, false},
		"it is another's, and not ours": {withData(drop, keep),
			func(s *appsv1.StatefulSet) []*corev1.Pod { return podsOf(s, "0") }, dataOf("web-0", stranger), nil, false},
		"it is another's, and ours": {withData(drop, keep),
			func(s *appsv1.StatefulSet) []*corev1.Pod { return podsOf(s, "0") }, dataOf("web-0", stranger, bySet),
			[]string{conflict}, false},
		"it is another's, and that is all the same": {withData(keep, keep), pending, dataOf("web-0", stranger), nil,
			false},
	} {
		set := web(1, row.policy)
		var pods []*corev1.Pod
		if row.pods != nil {
			pods = row.pods(set)
		}
		r, client, events := made(t, set, pods, row.claim)
		if err := r.sync(t.Context(), "n/web"); (err != nil) != row.fails {
			t.Errorf("%s: %v", name, err)
		}
		if told := heard(events); !slices.Equal(told, row.want) {
			t.Errorf("%s: %q, want %q", name, told, row.want)
		}
		claim, err := client.CoreV1().PersistentVolumeClaims("n").Get(t.Context(), "data-web-0", metav1.GetOptions{})
		if err != nil || strings.Contains(ownersOf(claim), "StatefulSet") {
			t.Errorf("%s: the claim is of %q, %v", name, ownersOf(claim), err)
		}
	}
}

func TestHowManyPodsMayBeAndAreDownIsCounted(t *testing.T) {
	sets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	byHand := web(2, func(s *appsv1.StatefulSet) {
		s.Name, s.Spec.UpdateStrategy = "by-hand", appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.OnDeleteStatefulSetStrategyType,
		}
	})
	half := web(4, func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("50%"))
		s.Status.AvailableReplicas = 1
	})
	for _, s := range []*appsv1.StatefulSet{byHand, half} {
		if err := sets.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(unavailable{appslisters.NewStatefulSetLister(sets)})
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP statefulset_controller_statefulset_max_unavailable Pods of a StatefulSet that may be unavailable while it is updated.
# TYPE statefulset_controller_statefulset_max_unavailable gauge
statefulset_controller_statefulset_max_unavailable{pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="n"} 2
# HELP statefulset_controller_statefulset_unavailable_replicas Pods of a StatefulSet that are missing or not available.
# TYPE statefulset_controller_statefulset_unavailable_replicas gauge
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="n"} 3
`)); err != nil {
		t.Error(err)
	}
}
