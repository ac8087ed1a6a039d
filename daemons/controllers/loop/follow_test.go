package loop

import (
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/kube/kubernetes/fake"
)

// eventLog records the events of one follower.
type eventLog struct {
	mu       sync.Mutex
	names    []string
	received chan struct{}
}

func (w *eventLog) record(_, obj any) {
	w.mu.Lock()
	w.names = append(w.names, obj.(*corev1.ConfigMap).Name)
	w.mu.Unlock()
	w.received <- struct{}{}
}

func (w *eventLog) expect(t *testing.T, names ...string) {
	t.Helper()
	for range names {
		<-w.received
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.names)
	if !slices.Equal(w.names, names) {
		t.Errorf("it got the events of %v, want %v", w.names, names)
	}
}

func TestAllFollowersOfACacheShareOneHandler(t *testing.T) {
	of := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	factory := informers.New(fake.NewClientset(of("a"), of("b")))
	c := Context{Informers: factory, Followers: NewFollowers()}
	informer := &countingInformer{SharedIndexInformer: informers.ConfigMaps(factory).Informer()}
	first, second, late := &eventLog{
		received: make(chan struct{}, 10),
	}, &eventLog{
		received: make(chan struct{}, 10),
	}, &eventLog{
		received: make(chan struct{}, 10),
	}
	c.OnChange(informer, first.record)
	c.OnChange(informer, second.record)
	if informer.handlers != 1 {
		t.Errorf("they have %d handlers", informer.handlers)
	}
	factory.StartWithContext(t.Context())
	first.expect(t, "a", "b")
	second.expect(t, "a", "b")
	// A follower that joins later also gets all existing objects.
	c.OnChange(informer, late.record)
	late.expect(t, "a", "b")
}

type countingInformer struct {
	cache.SharedIndexInformer
	handlers int
}

func (c *countingInformer) AddEventHandler(h cache.ResourceEventHandler) (
	cache.ResourceEventHandlerRegistration, error) {
	c.handlers++
	return c.SharedIndexInformer.AddEventHandler(h)
}
