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

const revision = "deployment.kubernetes.io/revision"

func deploy(t *testing.T, ns string, replicas int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
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
	return must[*appsv1.Deployment](t)(client.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}))
}

func patchDeployment(t *testing.T, ns, patch string, args ...any) {
	t.Helper()
	_, err := client.AppsV1().
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

// rolledOut waits until a rollout is complete by the criteria of kubectl rollout status.
func rolledOut(t *testing.T, ns string) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	until(t, "the rollout", func(ctx context.Context) (bool, any) {
		var err error
		if d, err = client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}); err != nil {
			return false, err
		}
		s, want := d.Status, *d.Spec.Replicas
		return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want &&
			s.AvailableReplicas == want, s
	})
	return d
}

func sets(t *testing.T, ns string) []appsv1.ReplicaSet {
	t.Helper()
	list := must[*appsv1.ReplicaSetList](t)(client.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{}))
	slices.SortFunc(
		list.Items,
		func(a, b appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) },
	)
	return list.Items
}

func images(t *testing.T, ns string) map[string]int {
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
	ns := namespace(t)
	deploy(t, ns, 3, nil)
	if d := rolledOut(t, ns); d.Annotations[revision] != "1" {
		t.Errorf("revision after the first rollout: %q", d.Annotations[revision])
	}
	setImage(t, ns, "example.com/a:2")
	if d := rolledOut(t, ns); d.Annotations[revision] != "2" {
		t.Errorf("revision after the second rollout: %q", d.Annotations[revision])
	}
	if got := images(t, ns); got["example.com/a:2"] != 3 || len(got) != 1 {
		t.Errorf("images after the rollout: %v", got)
	}
	// kubectl rollout undo restores the template of a revision's ReplicaSet.
	var first *appsv1.ReplicaSet
	for _, set := range sets(t, ns) {
		if set.Annotations[revision] == "1" {
			first = &set
		}
	}
	if first == nil {
		t.Fatalf("no set of revision 1: %v", sets(t, ns))
	}
	template := first.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": template}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.JSONPatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := rolledOut(t, ns); d.Annotations[revision] != "3" {
		t.Errorf("revision after undo: %q", d.Annotations[revision])
	}
	after := sets(t, ns)
	if len(after) != 2 {
		t.Errorf("undo made a new set: %d", len(after))
	}
	for _, set := range after {
		if set.UID == first.UID &&
			(set.Annotations[revision] != "3" || set.Annotations["deployment.kubernetes.io/revision-history"] != "1") {
			t.Errorf("the set that came back: %v", set.Annotations)
		}
	}
	if got := images(t, ns); got["example.com/a:1"] != 3 || len(got) != 1 {
		t.Errorf("images after undo: %v", got)
	}
}

// Proves S19.
func TestAPausedDeploymentScalesButDoesNotRoll(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	deploy(t, ns, 2, nil)
	rolledOut(t, ns)
	patchDeployment(
		t,
		ns,
		`{"spec":{"paused":true,"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"example.com/a:2"}]}}}}`,
	)
	until(t, "three old pods", func(context.Context) (bool, any) {
		got := images(t, ns)
		return got["example.com/a:1"] == 3, got
	})
	until(t, "word that it is paused", func(ctx context.Context) (bool, any) {
		d := must[*appsv1.Deployment](t)(client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
		return slices.ContainsFunc(
			d.Status.Conditions,
			func(c appsv1.DeploymentCondition) bool { return c.Reason == "DeploymentPaused" },
		), d.Status
	})
	always(t, "a paused deployment rolled", func(context.Context) (bool, any) {
		return len(sets(t, ns)) == 1, sets(t, ns)
	})
	patchDeployment(t, ns, `{"spec":{"paused":false}}`)
	rolledOut(t, ns)
	if got := images(t, ns); got["example.com/a:2"] != 3 || len(got) != 1 {
		t.Errorf("images after resuming: %v", got)
	}
}

// A rollout that cannot continue is scaled: both sets grow in proportion.
// Proves S19.
func TestScalingAStuckRolloutGrowsAllSets(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	deploy(t, ns, 4, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromInt32(2)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
		}
	})
	rolledOut(t, ns)
	// No node matches this selector, so the new pods stay pending.
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}`)
	sizes := func() map[int32]int {
		out := map[int32]int{}
		for _, set := range sets(t, ns) {
			out[*set.Spec.Replicas]++
		}
		return out
	}
	until(t, "the surge", func(context.Context) (bool, any) { got := sizes(); return got[4] == 1 && got[2] == 1, got })
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 10},
	}
	if _, err := client.AppsV1().Deployments(ns).UpdateScale(t.Context(), "web", scale,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(
		t,
		"both sets to grow to 8 and 4",
		func(context.Context) (bool, any) { got := sizes(); return got[8] == 1 && got[4] == 1, got },
	)
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	rolledOut(t, ns)
}

// Recreate never runs old and new pods at the same time.
// Proves S19.
func TestRecreateEndsOldPodsFirst(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	deploy(t, ns, 2, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	})
	rolledOut(t, ns)
	// The way back uses an existing ReplicaSet.
	for _, image := range []string{"example.com/a:2", "example.com/a:1"} {
		setImage(t, ns, image)
		until(t, "only new pods", func(context.Context) (bool, any) {
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
		rolledOut(t, ns)
	}
}

// Proves S19.
func TestARolloutThatDoesNotProgressSaysSo(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	deploy(t, ns, 1, func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = ptr.To[int32](1)
		d.Spec.Template.Spec.NodeSelector = map[string]string{"no": "where"}
	})
	condition := func(ctx context.Context) *appsv1.DeploymentCondition {
		d := must[*appsv1.Deployment](t)(client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing {
				return &c
			}
		}
		return nil
	}
	until(t, "the deadline", func(ctx context.Context) (bool, any) {
		c := condition(ctx)
		return c != nil && c.Reason == "ProgressDeadlineExceeded" && c.Status == corev1.ConditionFalse, c
	})
	patchDeployment(t, ns, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	rolledOut(t, ns)
	until(t, "word that it is done after all", func(ctx context.Context) (bool, any) {
		c := condition(ctx)
		return c.Reason == "NewReplicaSetAvailable" && c.Status == corev1.ConditionTrue, c
	})
}

// Proves S19.
func TestOldRevisionsBeyondTheLimitAreDropped(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	deploy(t, ns, 1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](1) })
	rolledOut(t, ns)
	for i := range 3 {
		setImage(t, ns, fmt.Sprintf("example.com/a:%d", i+2))
		rolledOut(t, ns)
	}
	until(t, "one old set", func(context.Context) (bool, any) {
		var revisions []string
		for _, set := range sets(t, ns) {
			revisions = append(revisions, set.Annotations[revision])
		}
		slices.Sort(revisions)
		return slices.Equal(revisions, []string{"3", "4"}), revisions
	})
}
