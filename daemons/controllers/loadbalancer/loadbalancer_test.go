package loadbalancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// cluster is a fake cluster in which the controller runs.
type cluster struct {
	*testing.T
	*fake.Clientset
	events *record.FakeRecorder
}

func startCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	c := newCluster(t, objects...)
	c.run()
	return c
}

// newCluster returns a cluster whose objects have resource versions, as on a server.
func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	var version atomic.Int64
	next := func(obj runtime.Object) {
		obj.(metav1.Object).SetResourceVersion(fmt.Sprint(version.Add(1)))
	}
	for _, obj := range objects {
		next(obj)
	}
	c := &cluster{t, fake.NewClientset(objects...), record.NewFakeRecorder(1000)}
	for _, verb := range []string{"create", "update"} {
		c.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if with, ok := a.(clienttesting.UpdateAction); ok {
				next(with.GetObject())
			}
			return false, nil, nil
		})
	}
	c.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		obj, err := c.Tracker().Get(p.GetResource(), p.GetNamespace(), p.GetName())
		if err != nil {
			return true, nil, err
		}
		s, patch := obj.DeepCopyObject().(*corev1.Service), corev1.Service{}
		if err := json.Unmarshal(p.GetPatch(), &patch); err != nil || p.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("patch %s: %w", p.GetPatch(), err)
		}
		if patch.ResourceVersion != s.ResourceVersion || patch.UID != s.UID {
			return true, nil, apierrors.NewConflict(p.GetResource().GroupResource(), s.Name,
				errors.New("somebody else has written"))
		}
		s.Finalizers, s.Status = patch.Finalizers, patch.Status
		next(s)
		return true, s, c.Tracker().Update(p.GetResource(), s, s.Namespace)
	})
	return c
}

// run starts a leader that runs until the test ends. It returns a function that stops it earlier.
func (c *cluster) run() (end func()) {
	ctx, cancel := context.WithCancel(c.Context())
	factory := informers.New(c.Clientset)
	n := New(
		loop.Context{Client: c.Clientset, Informers: factory, Log: slog.New(slog.DiscardHandler), Events: c.events},
	)
	factory.StartWithContext(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	end = func() {
		cancel()
		<-done
		factory.Shutdown()
		done <- nil
	}
	c.Cleanup(end)
	return end
}

func poolsMap(texts map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.PoolsName},
		Data:       texts,
	}
}

func (c *cluster) setPools(texts map[string]string) {
	c.Helper()
	c.update(poolsMap(texts))
}

func (c *cluster) update(m *corev1.ConfigMap) {
	c.Helper()
	if _, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(c.Context(), m,
		metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// emptyPoolsMap returns the ConfigMap that is written after the last pool was removed from the configuration.
func emptyPoolsMap(t *testing.T) *corev1.ConfigMap {
	data, annotations, err := config.EncodePools(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := poolsMap(data)
	m.Annotations = annotations
	return m
}

func (c *cluster) create(s *corev1.Service) {
	c.Helper()
	if _, err := c.CoreV1().Services(s.Namespace).Create(c.Context(), s, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) change(name string, f func(*corev1.Service)) {
	c.Helper()
	s := c.get(name)
	f(s)
	if _, err := c.CoreV1().Services("shop").Update(c.Context(), s, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) get(name string) *corev1.Service {
	c.Helper()
	s, err := c.CoreV1().Services("shop").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// stateText returns the state of a Service as text.
func stateText(s *corev1.Service) string {
	var parts []string
	for _, a := range loadbalancer.Addresses(s) {
		parts = append(parts, a.String())
	}
	for _, condition := range s.Status.Conditions {
		parts = append(parts, string(condition.Status)+" "+condition.Reason+": "+condition.Message)
	}
	return strings.Join(append(parts, s.Finalizers...), ", ")
}

// awaitState waits until a Service has a state.
func (c *cluster) awaitState(name, want string) {
	c.Helper()
	got := ""
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(2 * time.Millisecond) {
		if got = stateText(c.get(name)); got == want {
			return
		}
	}
	c.Fatalf("service %s is %q, want %q", name, got, want)
}

// awaitEvents waits for events in order.
func (c *cluster) awaitEvents(want ...string) {
	c.Helper()
	for _, w := range want {
		select {
		case got := <-c.events.Events:
			if got != w {
				c.Errorf("event %q, want %q", got, w)
			}
		case <-time.After(time.Minute):
			c.Fatalf("no event %q", w)
		}
	}
}

const finalizer = ", " + loadbalancer.Finalizer

var smallPool = map[string]string{"office": `{"addresses":["10.0.0.10"]}`}

func TestServiceLifecycle(t *testing.T) {
	c := startCluster(t, poolsMap(smallPool), newService("a", 9))
	c.awaitState("a", "10.0.0.10, True Assigned: 10.0.0.10 of pool office"+finalizer)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load "+
		"balancer")
	in := c.get("a").Status.LoadBalancer.Ingress[0]
	if *in.IPMode != corev1.LoadBalancerIPModeVIP ||
		!slices.Equal(in.Ports, []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}}) {
		t.Errorf("ingress %+v", in)
	}
	c.create(newService("b", 0))
	c.awaitState("b", "False NoAddress: all IPv4 addresses of office are in use"+finalizer)
	c.awaitEvents("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: all " +
		"IPv4 addresses of office are in use")
	c.change("a", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	for c.get("a").Status.LoadBalancer.Ingress[0].Ports[0].Port != 81 {
		time.Sleep(time.Millisecond)
	}
	c.change("a", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	c.awaitState("a", "")
	c.awaitEvents("Normal DeletingLoadBalancer Deleting load balancer", "Normal DeletedLoadBalancer Deleted load "+
		"balancer")
	c.awaitState("b", "10.0.0.10, True Assigned: 10.0.0.10 of pool office"+finalizer)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load "+
		"balancer")
	c.change("b", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	c.awaitState("b", "")
	c.awaitEvents("Normal DeletingLoadBalancer Deleting load balancer", "Normal DeletedLoadBalancer Deleted load "+
		"balancer")
}

func TestServicesOfOtherControllersAreIgnored(t *testing.T) {
	foreign := func(name string, change ...func(*corev1.Service)) *corev1.Service {
		s := newService(name, 0, change...)
		s.Status.Conditions, s.Finalizers = nil, []string{loadbalancer.Finalizer}
		return s
	}
	class := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
	}
	others := []*corev1.Service{
		foreign("class", class("example.com/balancer")), foreign("has", withAddresses("10.0.0.11")),
		foreign("goes", withAddresses("10.0.0.12"),
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
	}
	c := startCluster(t, poolsMap(map[string]string{"office": `{"addresses":["10.0.0.10-10.0.0.13"]}`}))
	var before []string
	for _, s := range others {
		c.create(s)
		before = append(before, stateText(s))
	}
	c.create(newService("p", 0, class(loadbalancer.Class),
		withAnnotation(loadbalancer.AddressesAnnotation, "10.0.0.13")))
	c.awaitState("p", "10.0.0.13, True Assigned: 10.0.0.13 of pool office"+finalizer)
	// Addresses that another controller assigned are in use, too.
	c.create(newService("q", 0, withAnnotation(loadbalancer.AddressesAnnotation, "10.0.0.11")))
	c.awaitState("q", "False NoAddress: 10.0.0.11 is in use by service shop/has"+finalizer)
	for i, s := range others {
		if after := stateText(c.get(s.Name)); after != before[i] {
			t.Errorf("service %s is %q, was %q", s.Name, after, before[i])
		}
	}
}

func TestServicesAreUnchangedWithoutPools(t *testing.T) {
	c := startCluster(t, emptyPoolsMap(t), newService("a", 0))
	c.create(newService("p", 0, func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(loadbalancer.Class) }))
	c.awaitState("p", "False NoAddress: no pool has IPv4 addresses for namespace shop"+finalizer)
	c.awaitState("a", "")
}

func TestAddressesAreWithdrawnOnlyIfTheirPoolIsRemoved(t *testing.T) {
	c := startCluster(t, poolsMap(smallPool), newService("a", 9))
	c.awaitState("a", "10.0.0.10, True Assigned: 10.0.0.10 of pool office"+finalizer)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load "+
		"balancer")
	c.setPools(map[string]string{"office": `{"addresses":`})
	c.awaitEvents("Warning InvalidPools The pools of addresses cannot be read, and the pools from before are used: " +
		"pool office: unexpected EOF")
	c.setPools(
		map[string]string{"office": `{"addresses":["10.0.0.9-10.0.0.10"],"autoAssign":false,"namespaces":["lab"]}`},
	)
	c.setPools(map[string]string{"annex": `{"addresses":["10.0.0.9-10.0.0.10"]}`})
	c.awaitState("a", "10.0.0.10, True Assigned: 10.0.0.10 of pool annex"+finalizer)
	c.setPools(map[string]string{"office": `{"addresses":["10.0.1.10"]}`})
	c.awaitState("a", "10.0.1.10, True Assigned: 10.0.1.10 of pool office"+finalizer)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer",
		"Warning AddressWithdrawn Address 10.0.0.10 is taken back: no pool has it any more",
		"Normal EnsuredLoadBalancer Ensured load balancer")
	c.update(emptyPoolsMap(t))
	c.awaitState("a", "")
	c.awaitEvents("Warning AddressWithdrawn Address 10.0.1.10 is taken back: no pool has it any more",
		"Normal DeletingLoadBalancer Deleting load balancer", "Normal DeletedLoadBalancer Deleted load balancer")
}

// If the ConfigMap is deleted or emptied, no address is removed: neither by the leader that knows the pools, nor by one
// that never saw them. Only an explicit annotation means that there are no pools.
func TestAddressesStayWithoutAReadablePoolConfiguration(t *testing.T) {
	class := func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(loadbalancer.Class) }
	two := map[string]string{"office": `{"addresses":["10.0.0.10-10.0.0.11"]}`}
	c := newCluster(t, poolsMap(two), newService("a", 9))
	end := c.run()
	const assigned = "10.0.0.10, True Assigned: 10.0.0.10 of pool office" + finalizer
	c.awaitState("a", assigned)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load "+
		"balancer")
	missing := func(consequence string) string {
		return "Warning PoolsMissing The pools of addresses cannot be read, and " + consequence + ": it is missing"
	}
	remove := func() {
		if err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(c.Context(), config.PoolsName,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The cache has no ConfigMap any more, but the server does not confirm that.
	refuse := true
	c.Lock() // the controller uses the client concurrently
	c.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refuse {
			refuse = false
			return true, nil, errors.New("nobody answers")
		}
		return false, nil, nil
	})
	c.Unlock()
	remove()
	c.awaitEvents(missing("the pools from before are used"))
	if refuse {
		t.Error("the server was not asked")
	}
	c.create(newService("b", 0, class))
	c.awaitState("b", "10.0.0.11, True Assigned: 10.0.0.11 of pool office"+finalizer)
	c.awaitEvents("Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load "+
		"balancer")
	end()
	c.run()
	c.awaitEvents(missing("services keep the addresses that they have, and get no others"))
	c.create(newService("c", 0, class))
	c.awaitState("c",
		"False NoAddress: the pools of addresses cannot be read: ConfigMap kube-system/load-balancer-pools: it is "+
			"missing"+finalizer)
	c.awaitEvents("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: the " +
		"pools of addresses cannot be read: ConfigMap kube-system/load-balancer-pools: it is missing")
	if _, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(c.Context(), poolsMap(nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitState(
		"c",
		`False NoAddress: the pools of addresses cannot be read: ConfigMap kube-system/load-balancer-pools: it is empty, and has no annotation `+config.NoPoolsAnnotation+`: "true"`+finalizer,
	)
	c.awaitState("a", assigned)
	// A Service that needs no address any more still releases it. The pools are used again once they are back.
	c.change("b", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	c.awaitState("b", "")
	c.setPools(two)
	c.awaitState("c", "10.0.0.11, True Assigned: 10.0.0.11 of pool office"+finalizer)
	c.awaitState("a", assigned)
	c.update(emptyPoolsMap(t))
	c.awaitState("a", "")
	c.awaitState("c", "False NoAddress: no pool has IPv4 addresses for namespace shop"+finalizer)
}

// A pool may get other addresses under the same name, and may be rewritten without a change.
func TestPoolsCanChangeTheirAddresses(t *testing.T) {
	c := startCluster(t, poolsMap(smallPool), newService("a", 0))
	c.awaitState("a", "10.0.0.10, True Assigned: 10.0.0.10 of pool office"+finalizer)
	c.setPools(map[string]string{"office": `{"addresses":["10.0.1.10"]}`})
	c.awaitState("a", "10.0.1.10, True Assigned: 10.0.1.10 of pool office"+finalizer)
	c.setPools(map[string]string{"office": `{"addresses": ["10.0.1.10"] }`})
	c.create(newService("b", 0))
	c.awaitState("b", "False NoAddress: all IPv4 addresses of office are in use"+finalizer)
}

// A new leader assigns no address that a previous leader assigned, even if its caches do not show that yet.
func TestNewLeadersKnowAssignedAddresses(t *testing.T) {
	c := newCluster(t, poolsMap(map[string]string{"office": `{"addresses":["10.0.0.10-10.0.0.19"]}`}))
	end := c.run()
	for i := range 5 {
		c.create(newService(fmt.Sprint(i), 0))
		c.awaitState(fmt.Sprint(i), fmt.Sprintf("10.0.0.1%d, True Assigned: 10.0.0.1%d of pool "+
			"office%s", i, i, finalizer))
	}
	end()
	behind := &corev1.ServiceList{}
	for i := range 8 {
		s := newService(fmt.Sprint(i), 0)
		if i >= 5 {
			c.create(s)
		}
		s = c.get(s.Name)
		if i == 2 {
			s.Status = corev1.ServiceStatus{}
		}
		if i != 3 { // not in the cache yet
			behind.Items = append(behind.Items, *s)
		}
	}
	c.PrependReactor("list", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list := behind
		if a.(clienttesting.ListAction).GetListRestrictions().Fields.String() != "" {
			return false, nil, nil // not the informer's request
		}
		behind = nil
		return list != nil, list, nil
	})
	c.run()
	given := map[string]bool{}
	for i := range 8 {
		for {
			if s := c.get(fmt.Sprint(i)); len(loadbalancer.Addresses(s)) > 0 {
				text, _ := json.Marshal(loadbalancer.Addresses(s))
				if given[string(text)] {
					t.Errorf("service %d has %s, which another has", i, text)
				}
				given[string(text)] = true
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if behind != nil {
		t.Error("the cache was not behind")
	}
}
