package tree

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/kube/discovery"
)

// kindsOf answers with lists of resources.
type kindsOf struct {
	discovery.Interface
	lists []*metav1.APIResourceList
}

func (k kindsOf) ServerPreferredResources() ([]*metav1.APIResourceList, error) { return k.lists, nil }

func object(apiVersion, kind, name string, owners ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID("uid-" + name))
	for _, owner := range owners {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{UID: types.UID("uid-" + owner)}))
	}
	return o
}

func newClients(objects ...*unstructured.Unstructured) (Clients, *metadatafake.FakeMetadataClient) {
	verbs := metav1.Verbs{"get", "list"}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"},
				Verbs: verbs},
			{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: verbs},
			{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true, Verbs: verbs}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true,
				ShortNames: []string{"deploy"}, Verbs: verbs},
			{Name: "replicasets", SingularName: "replicaset", Kind: "ReplicaSet", Namespaced: true, Verbs: verbs}}},
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	var headers, whole []runtime.Object
	for _, o := range objects {
		headers = append(headers, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
				OwnerReferences: o.GetOwnerReferences()}})
		whole = append(whole, o)
	}
	found := metadatafake.NewSimpleMetadataClient(scheme, headers...)
	return Clients{Discovery: kindsOf{lists: lists}, Metadata: found,
		Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), whole...),
		Health: func(o *unstructured.Unstructured) (string, string) {
			return "Current", "the state of\x1b " + o.GetName()
		}}, found
}

func TestTheTreeHasWhatIsOwnedThroughOthers(t *testing.T) {
	clients, found := newClients(object("apps/v1", "Deployment", "web"),
		object("apps/v1", "ReplicaSet", "web-1", "web"),
		object("v1", "Pod", "web-1-b", "web-1"), object("v1", "Pod", "web-1-a", "web-1", "web"),
		object("v1", "Pod", "other", "db"))
	found.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("forbidden")
	})
	report, err := Read(t.Context(), clients, "deploy.apps", "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Print(&out, report); err != nil {
		t.Fatal(err)
	}
	// web-1-a has two owners, and is in the tree once.
	want := `Deployment/web  Current: the state of\x1b web
├─ Pod/web-1-a  Current: the state of\x1b web-1-a
└─ ReplicaSet/web-1  Current: the state of\x1b web-1
   └─ Pod/web-1-b  Current: the state of\x1b web-1-b
not shown: secrets: forbidden
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestOwnersInACircleEnd(t *testing.T) {
	clients, _ := newClients(object("v1", "Pod", "a", "b", "a"), object("v1", "Pod", "b", "a"))
	report, err := Read(t.Context(), clients, "po", "shop", "a")
	if err != nil || len(report.Root.Owns) != 1 || len(report.Root.Owns[0].Owns) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestLargeTreesAreCut(t *testing.T) {
	objects := []*unstructured.Unstructured{object("apps/v1", "ReplicaSet", "web")}
	for i := range maxObjects + 10 {
		objects = append(objects, object("v1", "Pod", fmt.Sprintf("web-%d", i), "web"))
	}
	clients, _ := newClients(objects...)
	report, err := Read(t.Context(), clients, "replicaset", "shop", "web")
	if err != nil || len(report.Root.Owns) != maxObjects-1 || len(report.Unseen) != 1 ||
		report.Unseen[0] != "11 of 511 objects" {
		t.Errorf("%d, %v, %v", len(report.Root.Owns), report.Unseen, err)
	}
}

func TestUnknownKindsAndNamesAreErrors(t *testing.T) {
	clients, _ := newClients()
	for word, want := range map[string]string{"shoe": `no kind "shoe"`, "pod.apps": `no kind "pod.apps"`,
		"pod": "not found"} {
		if _, err := Read(t.Context(), clients, word, "shop", "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
}
