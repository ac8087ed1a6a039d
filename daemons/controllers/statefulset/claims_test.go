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

const retainClaims, deleteClaims = appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	appsv1.DeletePersistentVolumeClaimRetentionPolicyType

// withClaimTemplate returns a change that adds a claim template and a retention policy to a set.
func withClaimTemplate(whenDeleted,
	whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
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

func newClaim(name string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
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
func TestClaimOwnersFollowTheCurrentPolicy(t *testing.T) {
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
		current                 []metav1.OwnerReference
		want                    string
	}{
		{"kept from now on", retainClaims, retainClaims, 2, "0 1", []metav1.OwnerReference{bySet}, ""},
		{"kept from now on, too many", retainClaims, retainClaims, 1, "0 1", []metav1.OwnerReference{byPod("1")}, ""},
		{"deleted with the set from now on", deleteClaims, retainClaims, 2, "0 1", nil, "StatefulSet/set"},
		{"deleted with the set from now on, too many", deleteClaims, retainClaims, 1, "0 1",
			[]metav1.OwnerReference{byPod("1")},
			"StatefulSet/set"},
		{"deleted when it shrinks from now on", retainClaims, deleteClaims, 2, "0 1", []metav1.OwnerReference{bySet},
			""},
		{"deleted when it shrinks, too many", retainClaims, deleteClaims, 1, "0 1", []metav1.OwnerReference{bySet},
			"Pod/1"},
		{"deleted both ways, too many", deleteClaims, deleteClaims, 1, "0 1", []metav1.OwnerReference{bySet}, "Pod/1"},
		{"deleted both ways, there", deleteClaims, deleteClaims, 2, "0 1", []metav1.OwnerReference{byPod("1")},
			"StatefulSet/set"},
		{"too many, and deleted by somebody meanwhile", deleteClaims, deleteClaims, 1, "0 1x",
			[]metav1.OwnerReference{bySet},
			"Pod/1x"},
		{"kept after all while its pod goes", retainClaims, retainClaims, 1, "0 1x",
			[]metav1.OwnerReference{byPod("1x")}, ""},
		{"wanted again while its pod goes", retainClaims, deleteClaims, 2, "0 1x", []metav1.OwnerReference{byPod("1x")},
			""},
		{"somebody else's too", deleteClaims, deleteClaims, 1, "0 1", []metav1.OwnerReference{other, bySet},
			"ConfigMap/c Pod/1"},
	} {
		set := web(row.replicas, withClaimTemplate(row.whenDeleted, row.whenScaled))
		r, client, _ := newTestController(t, set, podsOf(set, row.pods), newClaim("web-0"),
			newClaim("web-1", row.current...))
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
func TestClaimsOfPodsBelowTheFirstOrdinalAreDeletedWithThem(t *testing.T) {
	set := web(2, func(s *appsv1.StatefulSet) {
		withClaimTemplate(retainClaims, deleteClaims)(s)
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	})
	r, client, _ := newTestController(t, set, podsOf(set, "0 1 2"), newClaim("web-0"), newClaim("web-1"),
		newClaim("web-2"))
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

func TestClaimOwnersAreSetForClaimsMissingFromTheCache(t *testing.T) {
	set := web(1, withClaimTemplate(retainClaims, deleteClaims))
	r, client, _ := newTestController(t, set, podsOf(set, "0 1"), newClaim("web-0"))
	if err := client.Tracker().Add(runtime.Object(newClaim("web-1"))); err != nil {
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

func TestBlockingClaimsAreReportedInEvents(t *testing.T) {
	going := newClaim("web-0")
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
		"it is being deleted": {withClaimTemplate(retainClaims, retainClaims), nil, going,
			[]string{"Warning FailedCreate create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being " +
				"deleted"}, true},
		"it is another's, and its pod waits": {withClaimTemplate(deleteClaims, retainClaims), pending,
			newClaim("web-0", stranger),
			[]string{conflict}, false},
		"it is another's, and not ours": {withClaimTemplate(deleteClaims, retainClaims),
			func(s *appsv1.StatefulSet) []*corev1.Pod { return podsOf(s, "0") }, newClaim("web-0", stranger), nil,
			false},
		"it is another's, and ours": {withClaimTemplate(deleteClaims, retainClaims),
			func(s *appsv1.StatefulSet) []*corev1.Pod { return podsOf(s, "0") }, newClaim("web-0", stranger, bySet),
			[]string{conflict}, false},
		"it is another's, and that is all the same": {withClaimTemplate(retainClaims, retainClaims), pending,
			newClaim("web-0", stranger), nil,
			false},
	} {
		set := web(1, row.policy)
		var pods []*corev1.Pod
		if row.pods != nil {
			pods = row.pods(set)
		}
		r, client, events := newTestController(t, set, pods, row.claim)
		if err := r.sync(t.Context(), "n/web"); (err != nil) != row.fails {
			t.Errorf("%s: %v", name, err)
		}
		if recorded := recordedEvents(events); !slices.Equal(recorded, row.want) {
			t.Errorf("%s: %q, want %q", name, recorded, row.want)
		}
		claim, err := client.CoreV1().PersistentVolumeClaims("n").Get(t.Context(), "data-web-0", metav1.GetOptions{})
		if err != nil || strings.Contains(ownersOf(claim), "StatefulSet") {
			t.Errorf("%s: the claim is of %q, %v", name, ownersOf(claim), err)
		}
	}
}

func TestUnavailablePodsAreCounted(t *testing.T) {
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
	registry.MustRegister(updateCollector{appslisters.NewStatefulSetLister(sets)})
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
