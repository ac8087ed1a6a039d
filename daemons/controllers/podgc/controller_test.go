package podgc

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/controllers/loop"
)

// S21: a node that could not be listed may be there: its pods go only when the server says of its name that there is none.
func TestPodsGoWithANodeOnlyWhenTheServerSaysThatThereIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		gone bool
	}{
		"it is not there":      {http.StatusNotFound, true},
		"it is there":          {http.StatusOK, false},
		"it cannot be read":    {http.StatusInternalServerError, false},
		"it may not be looked": {http.StatusForbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			var deleted []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
					w.WriteHeader(c.code)
					_, _ = io.WriteString(w, map[int]string{
						http.StatusOK:       `{"kind":"Node","apiVersion":"v1","metadata":{"name":"away"}}`,
						http.StatusNotFound: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`,
					}[c.code])
				case r.Method == http.MethodDelete:
					deleted = append(deleted, r.URL.Path)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
				default: // the pod is marked
					_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"lost","namespace":"default"}}`)
				}
			}))
			defer server.Close()
			nodes, pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}); err != nil {
				t.Fatal(err)
			}
			for name, node := range map[string]string{"kept": "here", "lost": "away"} {
				if err := pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: node}}); err != nil {
					t.Fatal(err)
				}
			}
			now := clocktesting.NewFakeClock(time.Now())
			g := &controller{
				Context: loop.Context{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}), Log: slog.New(slog.DiscardHandler), Clock: now},
				nodes:   corelisters.NewNodeLister(nodes), pods: pods, gone: map[string]time.Time{},
			}
			g.Config.NodeMonitorGracePeriod = time.Minute
			for range 2 { // first it is missed, then it has been missing for long enough
				err := g.collect(t.Context())
				if failed := c.code >= 400 && c.code != http.StatusNotFound && now.Now().After(g.gone["away"]); (err != nil) != failed {
					t.Error(err)
				}
				now.Step(2 * time.Minute)
			}
			want := []string(nil)
			if c.gone {
				want = []string{"/api/v1/namespaces/default/pods/lost"}
			}
			if !slices.Equal(deleted, want) {
				t.Errorf("deleted %v, want %v", deleted, want)
			}
		})
	}
}
