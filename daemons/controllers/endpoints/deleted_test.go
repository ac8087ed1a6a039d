package endpoints

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Endpoints are deleted with their service only when the API server confirms that the service is gone.
// Proves S20.
func TestEndpointsAreDeletedOnlyIfTheServerConfirmsTheirServiceIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		code    int
		body    string
		deleted int
		fails   bool
	}{
		"it is not there": {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"kind":"services","name":"web"}}`, 1, false},
		"it is there":     {http.StatusOK, `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"}}`, 0, false},
		"another is not there": {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"kind":"namespaces","name":"shop"}}`,
			0, true},
		"a page is not there": {http.StatusNotFound, "404 page not found", 0, true},
		"it cannot be read":   {http.StatusInternalServerError, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			deleted := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodDelete {
					deleted++
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
					return
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			services, all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(
				cache.MetaNamespaceKeyFunc,
				nil,
			)
			if err := all.Add(&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
				Labels: map[string]string{managedLabel: managedValue}}}); err != nil {
				t.Fatal(err)
			}
			e := &controller{
				Context:  loop.Context{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})},
				services: corelisters.NewServiceLister(services), endpoints: corelisters.NewEndpointsLister(all),
			}
			if err := e.sync(t.Context(), "shop/web"); (err != nil) != c.fails || deleted != c.deleted {
				t.Errorf("%d deleted, %v", deleted, err)
			}
		})
	}
}
