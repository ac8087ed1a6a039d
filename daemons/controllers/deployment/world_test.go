package deployment

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// testCluster holds one deployment, named web, with its sets and a fake clock.
type testCluster struct {
	t           *testing.T
	clock       *clocktesting.FakeClock
	client      *fake.Clientset
	events      *record.FakeRecorder
	d           *controller
	updateCache func(obj any)
}

var began = time.Unix(1_000_000, 0)

// web returns a deployment with n replicas of an image, a surge of one and no unavailable pods.
func web(n int32, image string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: ofImage(image),
			ProgressDeadlineSeconds: ptr.To[int32](600), RevisionHistoryLimit: ptr.To[int32](10),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
			},
		},
	}
}

func ofImage(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// webSet returns a set of web with all pods available, scaled for web's present number of replicas.
func webSet(d *appsv1.Deployment, name, image, revision string, n int32) *appsv1.ReplicaSet {
	surge, _ := rolloutLimits(d)
	set := newSizedSet(name, 100-len(revision), n, n)
	set.Namespace, set.Labels, set.Generation = "shop", map[string]string{"app": "web"}, 1
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}
	set.Annotations = map[string]string{
		revisionAnnotation: revision,
		desiredAnnotation:  formatCount(*d.Spec.Replicas),
		maxAnnotation:      formatCount(*d.Spec.Replicas + surge),
	}
	set.Spec.Selector, set.Spec.Template = d.Spec.Selector, ofImage(image)
	set.Status.ObservedGeneration, set.Status.TerminatingReplicas = 1, ptr.To[int32](0)
	return set
}

func formatCount(n int32) string { return (&intstr.IntOrString{IntVal: n}).String() }

func newTestCluster(t *testing.T, d *appsv1.Deployment, sets ...*appsv1.ReplicaSet) *testCluster {
	t.Helper()
	w := &testCluster{
		t:      t,
		clock:  clocktesting.NewFakeClock(began),
		client: fake.NewClientset(),
		events: record.NewFakeRecorder(100),
	}
	factory := informers.New(w.client)
	made, ok := New(loop.Context{Client: w.client, Informers: factory, Log: slog.New(slog.DiscardHandler),
		Events: w.events, Clock: w.clock}).(*controller)
	if !ok {
		t.Fatal("it is no controller of deployments")
	}
	w.d = made
	deployments, replicaSets := informers.Deployments(factory).
		Informer().
		GetIndexer(),
		informers.ReplicaSets(factory).
			Informer().
			GetIndexer()
	w.updateCache = func(obj any) {
		indexer := replicaSets
		if _, ok := obj.(*appsv1.Deployment); ok {
			indexer = deployments
		}
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	w.requireNoError(w.client.Tracker().Add(d))
	w.updateCache(d)
	for _, set := range sets {
		w.requireNoError(w.client.Tracker().Add(set))
		w.updateCache(set)
	}
	return w
}

func (w *testCluster) requireNoError(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// sync syncs once, and updates the caches with what was written.
func (w *testCluster) sync() error {
	w.t.Helper()
	err := w.d.sync(w.t.Context(), "shop/web")
	w.updateCache(w.deployment())
	list, listErr := w.client.AppsV1().ReplicaSets("shop").List(w.t.Context(), metav1.ListOptions{})
	w.requireNoError(listErr)
	for i := range list.Items {
		if list.Items[i].UID == "" {
			list.Items[i].UID = types.UID(list.Items[i].Name)
		}
		w.updateCache(&list.Items[i])
	}
	return err
}

func (w *testCluster) deployment() *appsv1.Deployment {
	w.t.Helper()
	d, err := w.client.AppsV1().Deployments("shop").Get(w.t.Context(), "web", metav1.GetOptions{})
	w.requireNoError(err)
	return d
}

// sets returns the wanted replicas of each set by name. A set that was created has the name "new".
func (w *testCluster) sets() map[string]int32 {
	w.t.Helper()
	list, err := w.client.AppsV1().ReplicaSets("shop").List(w.t.Context(), metav1.ListOptions{})
	w.requireNoError(err)
	out := map[string]int32{}
	for _, set := range list.Items {
		name := set.Name
		if strings.HasPrefix(name, "web-") {
			name = "new"
		}
		out[name] = *set.Spec.Replicas
	}
	return out
}

func (w *testCluster) recordedEvents() (lines []string) {
	for {
		select {
		case e := <-w.events.Events:
			lines = append(lines, e)
		default:
			return slices.Clip(lines)
		}
	}
}

// condition returns a condition's status, reason and message, or "".
func (w *testCluster) condition(kind appsv1.DeploymentConditionType) string {
	c := findCondition(w.deployment().Status, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func withCondition(
	d *appsv1.Deployment,
	kind appsv1.DeploymentConditionType,
	status corev1.ConditionStatus,
	reason string,
) *appsv1.Deployment {
	d.Status.Conditions = append(
		d.Status.Conditions,
		appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason,
			Message: "before", LastUpdateTime: metav1.NewTime(began), LastTransitionTime: metav1.NewTime(began)},
	)
	return d
}

// withCounts sets a deployment's status to n replicas, none of them updated, and the given number available.
func withCounts(d *appsv1.Deployment, n, available int32) *appsv1.Deployment {
	d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, available, available
	return d
}
