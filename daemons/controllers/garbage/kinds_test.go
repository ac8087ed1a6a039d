package garbage

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
	"clusterctl/kube/kubernetes"
	"clusterctl/kube/kubernetes/fake"
)

// failingClient is an API whose discovery fails.
type failingClient struct{ kubernetes.Interface }

func (failingClient) Discovery() discovery.Interface { return failingDiscovery{} }

type failingDiscovery struct{ discovery.Interface }

func (failingDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return nil, errors.New("the API is away")
}

func TestFailedDiscoveriesAreCounted(t *testing.T) {
	g, ok := New(loop.Context{Client: failingClient{fake.NewClientset()},
		Log: slog.New(slog.DiscardHandler)}).(*controller)
	if !ok {
		t.Fatal("it is no collector of garbage")
	}
	var wg sync.WaitGroup
	g.discoverKinds(t.Context(), &wg)
	g.discoverKinds(t.Context(), &wg)
	wg.Wait()
	if n := testutil.ToFloat64(g.failures.WithLabelValues()); n != 2 {
		t.Errorf("%v failures are counted", n)
	}
}
