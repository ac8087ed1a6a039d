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

// told records the events of one follower.
type told struct {
	mu    sync.Mutex
	names []string
	said  chan struct{}
}

func (w *told) hear(_, obj any) {
	w.mu.Lock()
	w.names = append(w.names, obj.(*corev1.ConfigMap).Name)
	w.mu.Unlock()
	w.said <- struct{}{}
}

func (w *told) want(t *testing.T, names ...string) {
	t.Helper()
	for range names {
		<-w.said
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.names)
	if !slices.Equal(w.names, names) {
		t.Errorf("it was told of %v, not %v", w.names, names)
	}
}

func TestAllFollowersOfACacheAreToldByOneHandler(t *testing.T) {
	of := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	factory := informers.New(fake.NewClientset(of("a"), of("b")))
	c := Context{Informers: factory, Followers: NewFollowers()}
	informer := &counting{SharedIndexInformer: informers.ConfigMaps(factory).Informer()}
	first, second, late := &told{
		said: make(chan struct{}, 10),
	}, &told{
		said: make(chan struct{}, 10),
	}, &told{
		said: make(chan struct{}, 10),
	}
	c.OnChange(informer, first.hear)
	c.OnChange(informer, second.hear)
	if informer.handlers != 1 {
		t.Errorf("they have %d handlers", informer.handlers)
	}
	factory.StartWithContext(t.Context())
	first.want(t, "a", "b")
	second.want(t, "a", "b")
	// A follower that joins later also gets all existing objects.
	c.OnChange(informer, late.hear)
	late.want(t, "a", "b")
}

type counting struct {
	cache.SharedIndexInformer
	handlers int
}

func (c *counting) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.handlers++
	return c.SharedIndexInformer.AddEventHandler(h)
}
