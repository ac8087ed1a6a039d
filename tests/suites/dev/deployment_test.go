package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const revisionAnnotation = "deployment.kubernetes.io/revision"

func createDeployment(t *testing.T, ns string, replicas int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	if change != nil {
		change(d)
	}
	return must[*appsv1.Deployment](t)(sharedClient.AppsV1().Deployments(ns).Create(t.Context(), d,
		metav1.CreateOptions{}))
}

func patchDeployment(t *testing.T, ns, patch string, args ...any) {
	t.Helper()
	_, err := sharedClient.AppsV1().
		Deployments(ns).
		Patch(t.Context(), "web", types.StrategicMergePatchType, fmt.Appendf(nil, patch, args...),
			metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func setImage(t *testing.T, ns, image string) {
	t.Helper()
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

// awaitRollout waits until a rollout is complete by the criteria of kubectl rollout status.
func awaitRollout(t *testing.T, ns string) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	waitFor(t, "the rollout", func(ctx context.Context) (bool, any) {
		var err error
		if d, err = sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}); err != nil {
			return false, err
		}
		s, want := d.Status, *d.Spec.Replicas
		return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want &&
			s.AvailableReplicas == want, s
	})
	return d
}

func replicaSets(t *testing.T, ns string) []appsv1.ReplicaSet {
	t.Helper()
	list := must[*appsv1.ReplicaSetList](t)(sharedClient.AppsV1().ReplicaSets(ns).List(t.Context(),
		metav1.ListOptions{}))
	slices.SortFunc(list.Items,
		func(a, b appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items
}

func podImages(t *testing.T, ns string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, pod := range podsOf(t, ns, "app=web") {
		if pod.DeletionTimestamp == nil {
			out[pod.Spec.Containers[0].Image]++
		}
	}
	return out
}

// Proves S19.
func TestADeploymentRollsOutAndUndoesToARevision(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 3, nil)
	if d := awaitRollout(t, ns); d.Annotations[revisionAnnotation] != "1" {
		t.Errorf("revision after the first rollout: %q", d.Annotations[revisionAnnotation])
	}
	setImage(t, ns, "example.com/a:2")
	if d := awaitRollout(t, ns); d.Annotations[revisionAnnotation] != "2" {
		t.Errorf("revision after the second rollout: %q", d.Annotations[revisionAnnotation])
	}
	if got := podImages(t, ns); got["example.com/a:2"] != 3 || len(got) != 1 {
		t.Errorf("images after the rollout: %v", got)
	}
	// kubectl rollout undo restores the template of a revision's ReplicaSet.
	var first *appsv1.ReplicaSet
	for _, set := range replicaSets(t, ns) {
		if set.Annotations[revisionAnnotation] == "1" {
			first = &set
		}
	}
	if first == nil {
		t.Fatalf("no set of revision 1: %v", replicaSets(t, ns))
	}
	template := first.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": template}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sharedClient.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.JSONPatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := awaitRollout(t, ns); d.Annotations[revisionAnnotation] != "3" {
		t.Errorf("revision after undo: %q", d.Annotations[revisionAnnotation])
	}
	after := replicaSets(t, ns)
	if len(after) != 2 {
		t.Errorf("undo made a new set: %d", len(after))
	}
	for _, set := range after {
		if set.UID == first.UID &&
			(set.Annotations[revisionAnnotation] != "3" ||
				set.Annotations["deployment.kubernetes.io/revision-history"] != "1") {
			t.Errorf("the set that came back: %v", set.Annotations)
		}
	}
	if got := podImages(t, ns); got["example.com/a:1"] != 3 || len(got) != 1 {
		t.Errorf("images after undo: %v", got)
	}
}

// Proves S19.
func TestAPausedDeploymentScalesButDoesNotRoll(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, nil)
	awaitRollout(t, ns)
	patchDeployment(
		t,
		ns,
		`{"spec":{"paused":true,"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:2"}]}}}}`,
	)
	waitFor(t, "three old pods", func(context.Context) (bool, any) {
		got := podImages(t, ns)
		return got["example.com/a:1"] == 3, got
	})
	waitFor(t, "word that it is paused", func(ctx context.Context) (bool, any) {
		d := must[*appsv1.Deployment](t)(sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
		return slices.ContainsFunc(d.Status.Conditions,
			func(c appsv1.DeploymentCondition) bool { return c.Reason == "DeploymentPaused" }), d.Status
	})
	holdFor(t, "a paused deployment rolled", func(context.Context) (bool, any) {
		return len(replicaSets(t, ns)) == 1, replicaSets(t, ns)
	})
	patchDeployment(t, ns, `{"spec":{"paused":false}}`)
	awaitRollout(t, ns)
	if got := podImages(t, ns); got["example.com/a:2"] != 3 || len(got) != 1 {
		t.Errorf("images after resuming: %v", got)
	}
}

// A rollout that cannot continue is scaled: both sets grow in proportion.
// Proves S19.
func TestScalingAStuckRolloutGrowsAllSets(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 4, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromInt32(2)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
		}
	})
	awaitRollout(t, ns)
	// No node matches this selector, so the new pods stay pending.
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}`)
	sizes := func() map[int32]int {
		out := map[int32]int{}
		for _, set := range replicaSets(t, ns) {
			out[*set.Spec.Replicas]++
		}
		return out
	}
	waitFor(t, "the surge", func(context.Context) (bool, any) {
		got := sizes()
		return got[4] == 1 &&
			got[2] == 1, got
	})
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 10},
	}
	if _, err := sharedClient.AppsV1().Deployments(ns).UpdateScale(t.Context(), "web", scale,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both sets to grow to 8 and 4",
		func(context.Context) (bool, any) { got := sizes(); return got[8] == 1 && got[4] == 1, got })
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	awaitRollout(t, ns)
}

// Recreate never runs old and new pods at the same time.
// Proves S19.
func TestRecreateEndsOldPodsFirst(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	})
	awaitRollout(t, ns)
	// The way back uses an existing ReplicaSet.
	for _, image := range []string{"example.com/a:2", "example.com/a:1"} {
		setImage(t, ns, image)
		waitFor(t, "only new pods", func(context.Context) (bool, any) {
			seen := map[string]int{}
			for _, pod := range podsOf(t, ns, "app=web") {
				if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
					seen[pod.Spec.Containers[0].Image]++
				}
			}
			if len(seen) == 2 {
				t.Fatalf("old and new pods at once: %v", seen)
			}
			return seen[image] == 2, seen
		})
		awaitRollout(t, ns)
	}
}

// Proves S19.
func TestStuckRolloutsAreReported(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 1, func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = ptr.To[int32](1)
		d.Spec.Template.Spec.NodeSelector = map[string]string{"no": "where"}
	})
	condition := func(ctx context.Context) *appsv1.DeploymentCondition {
		d := must[*appsv1.Deployment](t)(sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing {
				return &c
			}
		}
		return nil
	}
	waitFor(t, "the deadline", func(ctx context.Context) (bool, any) {
		c := condition(ctx)
		return c != nil && c.Reason == "ProgressDeadlineExceeded" && c.Status == corev1.ConditionFalse, c
	})
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	awaitRollout(t, ns)
	waitFor(t, "word that it is done after all", func(ctx context.Context) (bool, any) {
		c := condition(ctx)
		return c.Reason == "NewReplicaSetAvailable" && c.Status == corev1.ConditionTrue, c
	})
}

// Proves S19.
func TestOldRevisionsBeyondTheLimitAreDropped(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](1) })
	awaitRollout(t, ns)
	for i := range 3 {
		setImage(t, ns, fmt.Sprintf("example.com/a:%d", i+2))
		awaitRollout(t, ns)
	}
	waitFor(t, "one old set", func(context.Context) (bool, any) {
		var revisions []string
		for _, set := range replicaSets(t, ns) {
			revisions = append(revisions, set.Annotations[revisionAnnotation])
		}
		slices.Sort(revisions)
		return slices.Equal(revisions, []string{"3", "4"}), revisions
	})
}
