package loop

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/kube/kubernetes/fake"
)

// The cache of a new leader may not show the previous leader's revisions. It must not create another revision of the
// same template, which would replace all pods. A new revision gets a higher number than the existing ones. The status
// may have no collision count yet.
func TestNewLeadersReuseRevisionsMissingFromTheCache(t *testing.T) {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}},
	}
	client := fake.NewClientset(set)
	unseen := Revisions{Client: client, Label: appsv1.ControllerRevisionHashLabelKey,
		Lister: appslisters.NewControllerRevisionLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))}
	record := func() *appsv1.ControllerRevision {
		t.Helper()
		made, _, err := unseen.Record(
			t.Context(),
			RevisionOwner{Owner: set, Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
				Selector: set.Spec.Selector,
				Template: &set.Spec.Template, Collisions: &set.Status.CollisionCount,
				IsUsed:   func(*appsv1.ControllerRevision) bool { return true },
				ReadLive: func(context.Context) (metav1.Object, error) { return set, nil }},
		)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	first := record()
	set.Status.CollisionCount = new(int32)
	if again := record(); again.Name != first.Name ||
		hashOf(first.Data.Raw, nil) != hashOf(first.Data.Raw, new(int32)) {
		t.Errorf("the template is revision %s and %s", first.Name, again.Name)
	}
	list, err := client.AppsV1().ControllerRevisions("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || *set.Status.CollisionCount != 0 {
		t.Errorf("there are %d revisions, and %d collisions are counted: %v", len(list.Items),
			*set.Status.CollisionCount, err)
	}
	set.Spec.Template.Spec.NodeName = "elsewhere"
	if second := record(); second.Revision != 2 {
		t.Errorf("the second revision has the number %d", second.Revision)
	}
}
