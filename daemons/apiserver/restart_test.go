package apiserver_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/store"
)

// countingStore counts the calls for which a store has to read.
type countingStore struct {
	store.Store
	ranges, reads atomic.Int64
}

func (c *countingStore) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	c.ranges.Add(1)
	return c.Store.All(ctx, prefix, take)
}

func (c *countingStore) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *countingStore) Revision(ctx context.Context) (int64, error) {
	c.reads.Add(1)
	return c.Store.Revision(ctx)
}

// A restarted server loads the store once. Neither the server nor the returning informers cause further reads of the
// store.
// Proves S4.
func TestRestartedServerLoadsTheStoreOnce(t *testing.T) {
	s := stores["memory"](t)
	advertise := func(o *apiserver.Options) { o.AdvertiseAddress, o.AdvertisePort = "10.0.0.1", 6443 }
	t.Run("the first time", func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(startConfig(t, s, advertise))
		waitUntil(t, func() error { // the last object that a server creates for itself
			return client.RESTClient().
				Get().
				AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling").
				Do(timeoutContext(t)).
				Error()
		})
	})
	counted := &countingStore{Store: s}
	client := kubernetes.NewForConfigOrDie(startConfig(t, counted, advertise))
	ctx, stop := context.WithCancel(timeoutContext(t))
	defer stop()
	var informers sync.WaitGroup
	for range 50 {
		informers.Go(func() {
			list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.Error(err)
				return
			}
			w, err := client.CoreV1().
				Namespaces().
				Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
			if err != nil {
				t.Error(err)
				return
			}
			w.Stop()
		})
	}
	informers.Wait()
	// Two of the server's own tasks may write the same object at once, and the second then reads it again.
	const conflicts = 3
	if ranges, reads := counted.ranges.Load(), counted.reads.Load(); ranges != 1 || reads > conflicts {
		t.Errorf("%d ranges and %d other reads, want 1 and at most %d", ranges, reads, conflicts)
	}
}
