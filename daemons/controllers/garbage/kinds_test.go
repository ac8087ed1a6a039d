package garbage

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"clusterctl/daemons/controllers/loop"
)

// silent is an API that does not say which kinds it has.
type silent struct{ kubernetes.Interface }

func (silent) Discovery() discovery.DiscoveryInterfaces { return nothing{} }

type nothing struct{ discovery.DiscoveryInterfaces }

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
