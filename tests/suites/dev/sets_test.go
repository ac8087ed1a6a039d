package dev

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Proves S19.
func TestAReplicaSetAdoptsAndReleasesPodsByTheirLabels(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	orphan := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "orphan",
			Labels: map[string]string{"app": "x"},
		}, Spec: podSpec()}, metav1.CreateOptions{}))
	two := int32(2)
	set := must[*appsv1.ReplicaSet](t)(sharedClient.AppsV1().ReplicaSets(ns).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &two,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
				Spec:       podSpec(),
			},
		},
	}, metav1.CreateOptions{}))
	waitFor(t, "two pods, the orphan among them", func(ctx context.Context) (bool, any) {
		now, err := sharedClient.AppsV1().ReplicaSets(ns).Get(ctx, "x", metav1.GetOptions{})
		if err != nil || now.Status.ReadyReplicas != 2 {
			return false, now.Status
		}
		pod, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "orphan", metav1.GetOptions{})
		return err == nil && metav1.IsControlledBy(pod, set) && len(podsOf(t, ns, "app=x")) == 2, pod.OwnerReferences
	})
	// A relabelled pod is released and replaced, and keeps running.
	if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), "orphan", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"app":"debug"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the release", func(ctx context.Context) (bool, any) {
		pod, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "orphan", metav1.GetOptions{})
		return err == nil && pod.UID == orphan.UID && len(pod.OwnerReferences) == 0 &&
			len(podsOf(t, ns, "app=x")) == 2, fmt.Sprint(pod.OwnerReferences, err)
	})
}

// Proves S19.
func TestADaemonSetFollowsNodeLabelsAndUpdatesNodeByNode(t *testing.T) {
	ns := createNamespace(t)
	label := func(node, value string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"disk":%s}}}`, value)
		if _, err := sharedClient.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType,
			[]byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	spec := podSpec()
	spec.NodeSelector = map[string]string{"disk": "fast"}
	labels := map[string]string{"app": "d"}
	must[*appsv1.DaemonSet](t)(sharedClient.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{}))
	status := func(desired, ready, updated int32) {
		t.Helper()
		waitFor(
			t,
			fmt.Sprintf("%d wanted, %d ready, %d updated", desired, ready, updated),
			func(ctx context.Context) (bool, any) {
				d := must[*appsv1.DaemonSet](t)(sharedClient.AppsV1().DaemonSets(ns).Get(ctx, "d", metav1.GetOptions{}))
				s := d.Status
				return s.ObservedGeneration == d.Generation && s.DesiredNumberScheduled == desired &&
					s.NumberReady == ready &&
					s.UpdatedNumberScheduled == updated &&
					s.NumberMisscheduled == 0, s
			},
		)
	}
	status(0, 0, 0)
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		label(node, `"fast"`)
		t.Cleanup(func() {
			_, _ = sharedClient.CoreV1().
				Nodes().
				Patch(context.WithoutCancel(t.Context()), node, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"disk":null}}}`), metav1.PatchOptions{})
		})
	}
	status(3, 3, 3)
	on := map[string]bool{}
	for _, pod := range podsOf(t, ns, "app=d") {
		on[pod.Spec.NodeName] = true
	}
	if len(on) != 3 {
		t.Errorf("pods are on %v", on)
	}
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:2"}]}}}}`
	if _, err := sharedClient.AppsV1().DaemonSets(ns).Patch(t.Context(), "d", types.StrategicMergePatchType,
		[]byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "new pods everywhere, at most one missing at a time", func(ctx context.Context) (bool, any) {
		fresh, ready := 0, 0
		for _, pod := range podsOf(t, ns, "app=d") {
			if isReady(&pod) && pod.DeletionTimestamp == nil {
				ready++
				if pod.Spec.Containers[0].Image == "example.com/a:2" {
					fresh++
				}
			}
		}
		if ready < 2 {
			t.Fatalf("%d ready during the update", ready)
		}
		return fresh == 3, fresh
	})
	status(3, 3, 3)
	revisions := must[*appsv1.ControllerRevisionList](t)(sharedClient.AppsV1().ControllerRevisions(ns).List(t.Context(),
		metav1.ListOptions{})).Items
	if len(revisions) != 2 {
		t.Errorf("%d revisions, want 2", len(revisions))
	}
	label("node-2", "null")
	status(2, 2, 2)
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Proves S19.
func TestDaemonSetsWithASurgeKeepAllPodsReady(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	labels := map[string]string{"app": "d"}
	spec := podSpec()
	spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"node-1", "node-2"}}}}}}},
	}
	must[*appsv1.DaemonSet](t)(sharedClient.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{
					MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
			},
		},
	}, metav1.CreateOptions{}))
	ready := func() (n, fresh int) {
		for _, pod := range podsOf(t, ns, "app=d") {
			if isReady(&pod) && pod.DeletionTimestamp == nil {
				n++
				if pod.Spec.Containers[0].Image == "example.com/a:2" {
					fresh++
				}
			}
		}
		return n, fresh
	}
	waitFor(t, "two pods", func(context.Context) (bool, any) { n, _ := ready(); return n == 2, n })
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:2"}]}}}}`
	if _, err := sharedClient.AppsV1().DaemonSets(ns).Patch(t.Context(), "d", types.StrategicMergePatchType,
		[]byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "two new pods and no old one", func(context.Context) (bool, any) {
		n, fresh := ready()
		if n < 2 {
			t.Fatalf("%d ready during the update", n)
		}
		return n == 2 && fresh == 2, fresh
	})
}
