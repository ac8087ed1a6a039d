package dev

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func statefulSet(t *testing.T, ns string, replicas int32, change func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{"app": "web"}
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "web", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}}}
	if change != nil {
		change(&s.Spec)
	}
	return must[*appsv1.StatefulSet](t)(sharedClient.AppsV1().StatefulSets(ns).Create(t.Context(), s,
		metav1.CreateOptions{}))
}

// awaitSet waits until the status covers the present spec and ok accepts the set.
func awaitSet(t *testing.T, ns, what string, ok func(*appsv1.StatefulSet) bool) (s *appsv1.StatefulSet) {
	t.Helper()
	waitFor(t, what, func(ctx context.Context) (bool, any) {
		s = must[*appsv1.StatefulSet](t)(sharedClient.AppsV1().StatefulSets(ns).Get(ctx, "web", metav1.GetOptions{}))
		return s.Status.ObservedGeneration == s.Generation && ok(s), s.Status
	})
	return s
}

func hasReadyReplicas(n int32) func(*appsv1.StatefulSet) bool {
	return func(s *appsv1.StatefulSet) bool {
		return s.Status.ReadyReplicas == n && s.Status.Replicas == n && s.Status.AvailableReplicas == n
	}
}

func patchSet(t *testing.T, ns, patch string) {
	t.Helper()
	if _, err := sharedClient.AppsV1().StatefulSets(ns).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// imagesInOrder returns the images of the pods, by their ordinals.
func imagesInOrder(t *testing.T, ns string, n int) (list []string) {
	t.Helper()
	for i := range n {
		pod, err := sharedClient.CoreV1().Pods(ns).Get(t.Context(), fmt.Sprintf("web-%d", i), metav1.GetOptions{})
		if err != nil {
			return append(list, err.Error())
		}
		list = append(list, strings.TrimPrefix(pod.Spec.Containers[0].Image, "example.com/a:"))
	}
	return list
}

// Proves S19.
func TestStatefulSetsAreCreatedScaledAndUpdatedInOrder(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	statefulSet(t, ns, 3, nil)
	s := awaitSet(t, ns, "three pods", hasReadyReplicas(3))
	if s.Status.CurrentRevision == "" || s.Status.CurrentRevision != s.Status.UpdateRevision ||
		s.Status.CurrentReplicas != 3 ||
		s.Status.UpdatedReplicas != 3 {
		t.Errorf("its status is %+v", s.Status)
	}
	uids, last := map[string]types.UID{}, metav1.Time{}
	for i := range 3 {
		pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), fmt.Sprintf("web-%d", i),
			metav1.GetOptions{}))
		if pod.Spec.Hostname != pod.Name || pod.Spec.Subdomain != "web" ||
			pod.Labels["apps.kubernetes.io/pod-index"] != fmt.Sprint(i) ||
			pod.Labels["statefulset.kubernetes.io/pod-name"] != pod.Name ||
			pod.Labels["controller-revision-hash"] != s.Status.CurrentRevision {
			t.Errorf("pod %d is %v %s %s", i, pod.Labels, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
		if pod.CreationTimestamp.Before(&last) {
			t.Errorf("pod %d is older than the one before it", i)
		}
		uids[pod.Name], last = pod.UID, pod.CreationTimestamp
	}
	// With a partition, only a part of the pods is updated.
	patchSet(
		t,
		ns,
		`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:2"}]}}}}`,
	)
	s = awaitSet(t, ns, "the last to be updated",
		func(s *appsv1.StatefulSet) bool { return hasReadyReplicas(3)(s) && s.Status.UpdatedReplicas == 1 })
	if got := fmt.Sprint(imagesInOrder(t, ns, 3)); got != "[1 1 2]" || s.Status.CurrentReplicas != 2 ||
		s.Status.CurrentRevision == s.Status.UpdateRevision {
		t.Errorf("with a partition they are %s, %+v", got, s.Status)
	}
	// A pod below the partition is created again with its former template.
	if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the first to come back", func(ctx context.Context) (bool, any) {
		pod, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
		return err == nil && pod.UID != uids["web-0"] && isReady(pod), err
	})
	if got := fmt.Sprint(imagesInOrder(t, ns, 3)); got != "[1 1 2]" {
		t.Errorf("then they are %s", got)
	}
	patchSet(t, ns, `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	s = awaitSet(t, ns, "the update's end", func(s *appsv1.StatefulSet) bool {
		return hasReadyReplicas(3)(s) && s.Status.UpdatedReplicas == 3 &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	})
	if got := fmt.Sprint(imagesInOrder(t, ns, 3)); got != "[2 2 2]" {
		t.Errorf("after the update they are %s", got)
	}
	// The former template is restored: its revision is the newest again, and no third revision is created.
	patchSet(t, ns, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:1"}]}}}}`)
	awaitSet(t, ns, "the way back", func(now *appsv1.StatefulSet) bool {
		return hasReadyReplicas(3)(now) && now.Status.UpdatedReplicas == 3 &&
			now.Status.CurrentRevision != s.Status.CurrentRevision &&
			now.Status.CurrentRevision == now.Status.UpdateRevision
	})
	revisions := must[*appsv1.ControllerRevisionList](t)(sharedClient.AppsV1().ControllerRevisions(ns).List(t.Context(),
		metav1.ListOptions{})).Items
	if len(revisions) != 2 {
		t.Errorf("there are %d revisions", len(revisions))
	}
	// The scale subresource removes pods from the end.
	scale := must[*autoscalingv1.Scale](t)(sharedClient.AppsV1().StatefulSets(ns).GetScale(t.Context(), "web",
		metav1.GetOptions{}))
	scale.Spec.Replicas = 1
	must[*autoscalingv1.Scale](t)(sharedClient.AppsV1().StatefulSets(ns).UpdateScale(t.Context(), "web", scale,
		metav1.UpdateOptions{}))
	awaitSet(t, ns, "one pod", hasReadyReplicas(1))
	if pods := podsOf(t, ns, "app=web"); len(pods) != 1 || pods[0].Name != "web-0" {
		t.Errorf("%d pods are left", len(pods))
	}
}

// A pod with the set's labels and one of its names is adopted. A pod with another name is not.
// Proves S19.
func TestStatefulSetsAdoptTheirPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	for _, name := range []string{"web-1", "web-x"} {
		must[*corev1.Pod](t)(
			sharedClient.CoreV1().
				Pods(ns).
				Create(t.Context(),
					&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
						Spec: podSpec()}, metav1.CreateOptions{}),
		)
	}
	s := statefulSet(t, ns, 2, func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = appsv1.ParallelPodManagement })
	waitFor(t, "both", func(ctx context.Context) (bool, any) {
		own := 0
		for _, pod := range podsOf(t, ns, "app=web") {
			if metav1.IsControlledBy(&pod, s) && isReady(&pod) && pod.Labels["apps.kubernetes.io/pod-index"] != "" {
				own++
			}
		}
		return own == 2, own
	})
	if pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "web-x", metav1.GetOptions{})); len(
		pod.OwnerReferences,
	) != 0 {
		t.Errorf("a pod of another name is taken in: %v", pod.OwnerReferences)
	}
	// A failed pod is created again under its name.
	pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "web-0", metav1.GetOptions{}))
	failed := pod.DeepCopy()
	failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "Evicted"
	if _, err := sharedClient.CoreV1().Pods(ns).UpdateStatus(t.Context(), failed, metav1.UpdateOptions{}); err != nil {
		patch := `{"status":{"phase":"Failed","reason":"Evicted"}}`
		if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), "web-0", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "another in its place", func(ctx context.Context) (bool, any) {
		now, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
		return err == nil && now.UID != pod.UID && isReady(now), err
	})
}

// Claims are created for each pod, remain when the set is scaled down, and are deleted with the set if the policy says
// so.
// Proves S19.
func TestStatefulSetsManageTheirClaims(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	s := statefulSet(t, ns, 2, func(s *appsv1.StatefulSetSpec) {
		s.PodManagementPolicy = appsv1.ParallelPodManagement
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType}
		s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				}}},
		}
	})
	claims := func(ctx context.Context) (names []string, owned int) {
		for _, c := range must[*corev1.PersistentVolumeClaimList](t)(sharedClient.CoreV1().PersistentVolumeClaims(
			ns).List(
			ctx, metav1.ListOptions{LabelSelector: "app=web"})).Items {
			if c.DeletionTimestamp == nil {
				names = append(names, c.Name)
			}
			if len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == s.UID {
				owned++
			}
		}
		return names, owned
	}
	waitFor(t, "two claims", func(ctx context.Context) (bool, any) {
		names, owned := claims(ctx)
		return fmt.Sprint(names) == "[data-web-0 data-web-1]" && owned == 2, names
	})
	waitFor(t, "two pods", func(context.Context) (bool, any) { return len(podsOf(t, ns, "app=web")) == 2, nil })
	pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "web-1", metav1.GetOptions{}))
	if len(pod.Spec.Volumes) == 0 || pod.Spec.Volumes[0].PersistentVolumeClaim == nil ||
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-web-1" {
		t.Errorf("its volumes are %+v", pod.Spec.Volumes)
	}
	patchSet(t, ns, `{"spec":{"replicas":1}}`)
	waitFor(t, "one pod", func(context.Context) (bool, any) { return len(podsOf(t, ns, "app=web")) == 1, nil })
	if names, _ := claims(t.Context()); len(names) != 2 {
		t.Errorf("claims are %v", names)
	}
	background := metav1.DeletePropagationBackground
	if err := sharedClient.AppsV1().StatefulSets(ns).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "pods and claims to go", func(ctx context.Context) (bool, any) {
		names, _ := claims(ctx)
		return len(names) == 0 && len(podsOf(t, ns, "app=web")) == 0, names
	})
}

// If a set is deleted without its pods and created again, it also adopts their revision. Its pods are as declared, and
// none is restarted.
// Proves S19.
func TestRecreatedStatefulSetsRestartNoPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	statefulSet(t, ns, 2, nil)
	before := awaitSet(t, ns, "two pods", hasReadyReplicas(2))
	uids := map[string]types.UID{}
	for _, pod := range podsOf(t, ns, "app=web") {
		uids[pod.Name] = pod.UID
	}
	orphan := metav1.DeletePropagationOrphan
	if err := sharedClient.AppsV1().StatefulSets(ns).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the set to go", func(ctx context.Context) (bool, any) {
		_, err := sharedClient.AppsV1().StatefulSets(ns).Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	again := statefulSet(t, ns, 2, nil)
	after := awaitSet(t, ns, "both to be taken in", hasReadyReplicas(2))
	if after.Status.UpdateRevision != before.Status.UpdateRevision ||
		after.Status.CurrentRevision != before.Status.CurrentRevision ||
		after.Status.UpdatedReplicas != 2 ||
		after.Status.CollisionCount != nil && *after.Status.CollisionCount != 0 {
		t.Errorf("its status is %+v, that of the former %+v", after.Status, before.Status)
	}
	for _, pod := range podsOf(t, ns, "app=web") {
		if pod.UID != uids[pod.Name] || pod.DeletionTimestamp != nil || !metav1.IsControlledBy(&pod, again) {
			t.Errorf("%s is restarted, or has no controller", pod.Name)
		}
	}
	revisions := must[*appsv1.ControllerRevisionList](t)(sharedClient.AppsV1().ControllerRevisions(ns).List(t.Context(),
		metav1.ListOptions{})).Items
	if len(revisions) != 1 || !metav1.IsControlledBy(&revisions[0], again) {
		t.Errorf("its revisions are %+v", revisions)
	}
}
