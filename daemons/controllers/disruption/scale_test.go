package disruption

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Owners of any kind count by their scale. If the scale of one is unknown, the total is unknown, and not smaller.
// Proves S14.
func TestOwnersOfAnyKindCountByTheirScale(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIGroupDiscoveryList","items":[]}`)
		case "/apis":
			fmt.Fprint(
				w,
				`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[
				{"resource":"shops","responseKind":{"kind":"Shop"},"scope":"Namespaced","verbs":["get"],"subresources":[
					{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get"]}]},
				{"resource":"books","responseKind":{"kind":"Book"},"scope":"Namespaced","verbs":["get"]}]}]}]}`,
			)
		case "/apis/example.com/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[
				{"name":"shops","kind":"Shop","namespaced":true,"verbs":["get"]},{"name":"shops/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true,"verbs":["get"]},
				{"name":"books","kind":"Book","namespaced":true,"verbs":["get"]}]}`)
		case "/apis/example.com/v1/namespaces/default/shops/corner/scale":
			fmt.Fprint(
				w,
				`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"corner","namespace":"default","uid":"corner"},"spec":{"replicas":5}}`,
			)
		case "/apis/example.com/v1/namespaces/default/shops/dark/scale":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, status)
		}
	}))
	defer server.Close()
	restConfig := &rest.Config{Host: server.URL, QPS: -1}
	client := kubernetes.NewForConfigOrDie(restConfig)
	from := informers.New(client)
	s, _ := newScales(loop.Context{Client: client, Dynamic: dynamic.NewForConfigOrDie(restConfig), Informers: from},
		nil, func(string) {})
	three := int32(3)
	if err := informers.StatefulSets(from).Informer().GetIndexer().Add(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default", UID: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: &three}}); err != nil {
		t.Fatal(err)
	}
	owned := func(version, kind, name, uid string) *corev1.Pod {
		controller := true
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &controller}}},
		}
	}
	corner, db := owned("example.com/v1", "Shop", "corner", "corner"), owned("apps/v1", "StatefulSet", "db", "db")
	for name, c := range map[string]struct {
		pods      []*corev1.Pod
		total     int
		unmanaged int
		err       string
	}{
		"a shop":                    {[]*corev1.Pod{corner, corner}, 5, 0, ""},
		"a shop and a set":          {[]*corev1.Pod{corner, db, db}, 8, 0, ""},
		"one that nobody controls":  {[]*corev1.Pod{corner, {}}, 5, 1, ""},
		"a shop that is gone":       {[]*corev1.Pod{db, owned("example.com/v1", "Shop", "none", "none")}, 0, 0, `found no controllers for pod "p"`},
		"another of that name":      {[]*corev1.Pod{owned("example.com/v1", "Shop", "corner", "former")}, 0, 0, `found no controllers for pod "p"`},
		"a set that was made again": {[]*corev1.Pod{owned("apps/v1", "StatefulSet", "db", "former")}, 0, 0, `no matches for kind "StatefulSet"`},
		"one that cannot be read": {[]*corev1.Pod{db, owned("example.com/v1", "Shop", "dark", "dark")}, 0, 0,
			"get the scale of Shop default/dark"},
		"a kind without a scale": {[]*corev1.Pod{owned("example.com/v1", "Book", "b", "b")}, 0, 0,
			"books.example.com does not implement the scale subresource"},
		"a kind that is not served": {[]*corev1.Pod{owned("example.com/v1", "Pen", "p", "p")}, 0, 0, `no matches for kind "Pen"`},
	} {
		total, unmanaged, err := s.expectedPods(t.Context(), c.pods)
		if total != c.total || len(unmanaged) != c.unmanaged || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %d, %v", name, total, len(unmanaged), err)
		}
	}
}
