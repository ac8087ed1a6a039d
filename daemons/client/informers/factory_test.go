package informers

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/kube/kubernetes/fake"
)

func TestEachKindListsAndWatchesItsOwnResource(t *testing.T) {
	for _, k := range kinds() {
		resource := k.version.WithResource(k.resource)
		client := fake.NewClientset()
		from := k.newSource(client, "")
		if _, err := from.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("%s: list: %v", resource, err)
		}
		watch, err := from.watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%s: watch: %v", resource, err)
			continue
		}
		watch.Stop()
		for _, action := range client.Actions() {
			if action.GetResource() != resource {
				t.Errorf("%s: %s asks for %s", resource, action.GetVerb(), action.GetResource())
			}
			var kind string
			switch a := action.(type) {
			case clienttesting.ListActionImpl:
				kind = a.Kind.Kind
			case clienttesting.WatchActionImpl:
				continue
			}
			if want := reflect.TypeOf(k.object).Elem(); scheme.Scheme.AllKnownTypes()[k.version.WithKind(
				kind)] != want {
				t.Errorf("%s: lists %s, and its objects are %s", resource, kind, want)
			}
		}
	}
}

func TestInformersAreSharedByKind(t *testing.T) {
	client := fake.NewClientset(pod("a", "x"), pod("b", "x"), pod("a", "y"))
	f := New(client, WithNamespace("a"), WithTransform(func(obj any) (any, error) {
		obj.(*corev1.Pod).Labels = map[string]string{"seen": "yes"}
		return obj, nil
	}))
	one, lister := Pods(f).Informer(), Pods(f).Lister()
	other, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil || one != other {
		t.Fatalf("ForResource returns %v, %v", other, err)
	}
	if _, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("podtemplates")); err == nil {
		t.Error("ForResource returns an informer of a resource that nothing watches")
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	f.StartWithContext(ctx) // starts nothing twice
	if filled := f.WaitForCacheSync(ctx.Done()); len(filled) != 1 || !filled[reflect.TypeFor[*corev1.Pod]()] {
		t.Errorf("filled are %v", filled)
	}
	found, err := lister.List(labels.SelectorFromSet(labels.Set{"seen": "yes"}))
	if err != nil || len(found) != 2 {
		t.Errorf("the cache holds %d pods, %v", len(found), err)
	}
	cancel()
	f.Shutdown()
	Nodes(f).Informer()
	f.StartWithContext(t.Context())
	if filled := f.WaitForCacheSync(t.Context().Done()); len(filled) != 1 {
		t.Errorf("after Shutdown run %v", filled)
	}
}

func TestFactoryOptionsApplyToListsAndWatches(t *testing.T) {
	client := fake.NewClientset()
	f := New(client, WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "a=b" }))
	Pods(f).Informer()
	ctx, cancel := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	cancel()
	f.Shutdown()
	for _, action := range client.Actions() {
		var by string
		switch a := action.(type) {
		case clienttesting.ListAction:
			by = a.GetListRestrictions().Labels.String()
		case clienttesting.WatchAction:
			by = a.GetWatchRestrictions().Labels.String()
		}
		if by != "a=b" {
			t.Errorf("%s selects %q", action.GetVerb(), by)
		}
	}
}

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
