package deployment

import (
	"log/slog"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// An undo reuses an existing set. Like a new set, it gets pods only after the other set's pods have ended.
// Proves S19.
func TestRecreateWaitsForOldPodsOnRollback(t *testing.T) {
	for name, c := range map[string]struct {
		phase corev1.PodPhase
		grows bool
	}{
		"an old pod still runs": {corev1.PodRunning, false},
		"the old pod has ended": {corev1.PodSucceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			factory := informers.New(client)
			d, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler),
				Events: record.NewFakeRecorder(100)}).(*controller)
			if !ok {
				t.Fatal("it is no controller of deployments")
			}
			deployment, old, back, pod := rolledBack(c.phase)
			for _, obj := range []runtime.Object{deployment, old, back, pod} {
				if err := client.Tracker().Add(obj); err != nil {
					t.Fatal(err)
				}
			}
			for _, err := range []error{
				informers.Deployments(factory).Informer().GetIndexer().Add(deployment),
				informers.ReplicaSets(factory).Informer().GetIndexer().Add(old),
				informers.ReplicaSets(factory).Informer().GetIndexer().Add(back),
				informers.Pods(factory).Informer().GetIndexer().Add(pod),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := d.sync(t.Context(), "shop/web"); err != nil {
				t.Fatal(err)
			}
			got, err := client.AppsV1().ReplicaSets("shop").Get(t.Context(), "back", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if grown := *got.Spec.Replicas > 0; grown != c.grows {
				t.Errorf("the set that is rolled back to has pods: %v", grown)
			}
		})
	}
}

// rolledBack returns a Deployment that was undone from the set old to the set back, and a pod of the old set.
func rolledBack(phase corev1.PodPhase) (deployment *appsv1.Deployment, old, back *appsv1.ReplicaSet, pod *corev1.Pod) {
	labels := map[string]string{"app": "web"}
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}
	}
	one, none := int32(1), int32(0)
	deployment = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "d", Generation: 3},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template("a:1"),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}},
	}
	set := func(name, image string) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       "shop",
				Name:            name,
				UID:             types.UID(name),
				Labels:          labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, kind)},
				Annotations:     map[string]string{desiredAnnotation: "1", maxAnnotation: "1"},
			},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &none,
				Selector: deployment.Spec.Selector,
				Template: template(image),
			},
		}
	}
	old = set("old", "a:2")
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "p", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(old, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
		}}, Status: corev1.PodStatus{Phase: phase}}
	back = set("back", "a:1")
	return deployment, old, back, pod
}
