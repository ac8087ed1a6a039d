package garbage

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
	"net/http"
	"net/http/httptest"
)

// Finalizers for dependents are not removed before every kind has been listed, because the dependents are not known
// until then.
// Proves S21.
func TestFinalizersStayUntilEveryKindIsListed(t *testing.T) {
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		t.Run(finalizer, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				w.WriteHeader(http.StatusNotFound)
			}))
			defer server.Close()
			client := metadata.NewForConfigOrDie(&rest.Config{Host: server.URL})
			g, ok := New(loop.Context{Metadata: client}).(*controller)
			if !ok {
				t.Fatal("it is no collector")
			}
			resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
			// An informer that is not started has not listed anything.
			g.watched[resource] = &watchedKind{
				isListed: cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0,
					nil).HasSynced,
			}
			owner := object{
				&served{resource, "Pod"},
				&minimalMetadata{
					namespace:         "default",
					name:              "owner",
					uid:               "1",
					finalizers:        []string{finalizer},
					deletionTimestamp: &metav1.Time{},
				},
			}
			g.graph.put(owner)
			if err := g.sync(t.Context(), "1"); err == nil || requests > 0 {
				t.Errorf("before all are listed: %v after %d requests", err, requests)
			}
			delete(g.watched, resource)
			if err := g.sync(t.Context(), "1"); err == nil || requests > 0 {
				t.Errorf("before any is listed: %v after %d requests", err, requests)
			}
		})
	}
}
