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

// silent is an API whose discovery fails.
type silent struct{ kubernetes.Interface }

func (silent) Discovery() discovery.Interface { return nothing{} }

type nothing struct{ discovery.Interface }

func (nothing) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return nil, errors.New("the API is away")
}

func TestLooksAtKindsThatFailAreCounted(t *testing.T) {
	g, ok := New(loop.Context{Client: silent{fake.NewClientset()}, Log: slog.New(slog.DiscardHandler)}).(*controller)
	if !ok {
		t.Fatal("it is no collector of garbage")
	}
	var wg sync.WaitGroup
	g.lookAtKinds(t.Context(), &wg)
	g.lookAtKinds(t.Context(), &wg)
	wg.Wait()
	if n := testutil.ToFloat64(g.failures.WithLabelValues()); n != 2 {
		t.Errorf("%v failures are counted", n)
	}
}
