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

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/controllers/node"
	"clusterctl/kube/kubernetes"
)

// newIndexer returns an empty cache of pods with the controller's indexes.
func newIndexer() cache.Indexer {
	pods := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{})
	node.IndexByNode(pods)
	_ = pods.AddIndexers(cache.Indexers{endIndex: byEnd})
	return pods.GetIndexer()
}

func TestCandidatesAreFoundByIndex(t *testing.T) {
	nodes, pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), newIndexer()
	if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	for name, p := range map[string]corev1.Pod{
		"well":      {Spec: corev1.PodSpec{NodeName: "here"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"waiting":   {},
		"failed":    {Spec: corev1.PodSpec{NodeName: "here"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
		"succeeded": {Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		"deleted": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now},
			Spec: corev1.PodSpec{NodeName: "here"}},
		"lost": {Spec: corev1.PodSpec{NodeName: "away"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"lost, deleted": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now},
			Spec: corev1.PodSpec{NodeName: "away"}},
		"never, deleted": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}},
	} {
		p.Namespace, p.Name = "default", name
		if err := pods.Add(&p); err != nil {
			t.Fatal(err)
		}
	}
	g := &controller{nodes: corelisters.NewNodeLister(nodes), pods: pods}
	found, err := g.candidates()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range found {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	if want := []string{"deleted", "failed", "lost", "lost, deleted", "never, deleted", "succeeded"}; !slices.Equal(
		names,
		want,
	) {
		t.Errorf("found %q, want %q", names, want)
	}
}

// Pods of a node are deleted only when the API server confirms that the node does not exist.
// Proves S21.
func TestPodsAreDeletedOnlyIfTheServerConfirmsTheirNodeIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		isGone bool
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
				default: // the pod's condition is set
					_, _ = io.WriteString(w,
						`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"lost","namespace":"default"}}`)
				}
			}))
			defer server.Close()
			nodes, pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), newIndexer()
			if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}); err != nil {
				t.Fatal(err)
			}
			for name, on := range map[string]string{"kept": "here", "lost": "away"} {
				if err := pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
					Spec: corev1.PodSpec{NodeName: on}}); err != nil {
					t.Fatal(err)
				}
			}
			now := clocktesting.NewFakeClock(time.Now())
			g := &controller{
				Context: loop.Context{
					Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}),
					Log:    slog.New(slog.DiscardHandler),
					Clock:  now,
				},
				nodes: corelisters.NewNodeLister(
					nodes,
				), pods: pods, missingSince: map[string]time.Time{}, counts: newCounts(loop.Context{}),
			}
			g.Config.NodeMonitorGracePeriod = time.Minute
			for range 2 { // first it is missing, then it has been missing for long enough
				err := g.collect(t.Context())
				if failed := c.code >= 400 && c.code != http.StatusNotFound &&
					now.Now().After(g.missingSince["away"]); (err != nil) != failed {
					t.Error(err)
				}
				now.Step(2 * time.Minute)
			}
			want := []string(nil)
			if c.isGone {
				want = []string{"/api/v1/namespaces/default/pods/lost"}
			}
			if !slices.Equal(deleted, want) {
				t.Errorf("deleted %v, want %v", deleted, want)
			}
			if n := testutil.ToFloat64(g.counts.deleted.WithLabelValues("default", "orphaned")); n > 0 != c.isGone {
				t.Errorf("%v pods are counted as orphaned", n)
			}
		})
	}
}
