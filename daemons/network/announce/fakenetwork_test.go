package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/kube/kubernetes/fake"
)

// fakeNetwork simulates a network: which machines have which addresses, and which machine the neighbours believe to
// have them.
type fakeNetwork struct {
	mu         sync.Mutex
	kernels    map[netip.Addr]map[string]time.Time // until when each machine's kernel has it
	neighbours map[netip.Addr]string               // machine that announced it last
	poweredOff map[string]bool                     // machines without power
}

// fakePlace simulates an address on one machine of the network.
type fakePlace struct {
	*fakeNetwork
	self    string
	address netip.Addr
}

func (s fakePlace) Set(lifetime time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kernels[s.address] == nil {
		s.kernels[s.address] = map[string]time.Time{}
	}
	s.kernels[s.address][s.self] = time.Now().Add(lifetime)
	return nil
}

func (s fakePlace) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kernels[s.address], s.self)
	return nil
}

func (s fakePlace) Announce() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.poweredOff[s.self] {
		s.neighbours[s.address] = s.self
	}
	return nil
}

func (s fakePlace) IsTaken(time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.holders(s.address) {
		if other != s.self {
			return true, nil
		}
	}
	return false, nil
}

func (s fakePlace) Interface() string { return "eth0" }

// slowPlace is a spot on an overloaded machine.
type slowPlace struct{ fakePlace }

func (s slowPlace) Set(lifetime time.Duration) error {
	time.Sleep(handoverTime - 50*time.Millisecond)
	return s.fakePlace.Set(lifetime)
}

// holders returns the sorted names of the powered machines whose kernel has an address. The caller holds mu.
func (l *fakeNetwork) holders(a netip.Addr) (all []string) {
	for name, until := range l.kernels[a] {
		if time.Now().Before(until) && !l.poweredOff[name] {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// currentHolders is holders for callers that do not hold mu.
func (l *fakeNetwork) currentHolders(a netip.Addr) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holders(a)
}

// answeringMachine returns the machine that responds to packets to an address, or "" if none does. A powered machine
// forwards packets that reach it, even if it no longer has the address.
func (l *fakeNetwork) answeringMachine(a netip.Addr) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if who := l.neighbours[a]; who != "" && !l.poweredOff[who] && len(l.holders(a)) > 0 {
		return who
	}
	return ""
}

// testCluster is a set of machines on a network with an API server.
type testCluster struct {
	testing.TB
	*fakeNetwork
	*fake.Clientset
	isDown       atomic.Bool // the API server does not respond to requests for leases
	mu           sync.Mutex
	disconnected map[string]bool // machines without a connection to the API server
	findPlace    func(machine string, a netip.Addr, names []string) (addressPlace, error)
	stops        map[string]func()
	log          *slog.Logger
}

func newTestCluster(t testing.TB, objects ...runtime.Object) *testCluster {
	w := &testCluster{
		TB: t,
		fakeNetwork: &fakeNetwork{
			kernels:    map[netip.Addr]map[string]time.Time{},
			neighbours: map[netip.Addr]string{},
			poweredOff: map[string]bool{},
		},
		Clientset:    fake.NewClientset(objects...),
		disconnected: map[string]bool{},
		stops:        map[string]func(){},
		log:          slog.New(slog.DiscardHandler),
	}
	w.findPlace = func(machine string, a netip.Addr, _ []string) (addressPlace, error) {
		return fakePlace{w.fakeNetwork, machine, a}, nil
	}
	var version atomic.Int64
	// The resource version increases with each write, as on a real server.
	for _, verb := range []string{"create", "update"} {
		w.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			m := a.(clienttesting.UpdateAction).GetObject().(metav1.Object)
			if a.GetVerb() == "update" && a.GetResource().Resource == "leases" {
				got, err := w.Tracker().Get(a.GetResource(), a.GetNamespace(), m.GetName())
				if err != nil {
					return true, nil, err
				}
				if got.(metav1.Object).GetResourceVersion() != m.GetResourceVersion() {
					return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), m.GetName(),
						errors.New("changed"))
				}
			}
			m.SetResourceVersion(fmt.Sprint(version.Add(1)))
			return false, nil, nil
		})
	}
	return w
}

// startMachine runs a machine's announcer until it is stopped.
func (w *testCluster) startMachine(name string) {
	factory := informers.New(w.Clientset)
	nodes := informers.Nodes(factory)
	leases := fake.NewClientset()
	leases.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		cut := w.disconnected[name]
		w.mu.Unlock()
		if cut || w.isDown.Load() {
			return true, nil, errors.New("nobody answers")
		}
		obj, err := w.Invokes(a, nil)
		return true, obj, err
	})
	an := New(
		Options{
			Self:   name,
			Client: w.Clientset,
			Leases: leases,
			Nodes:  nodes.Lister(),
			Log:    w.log.With("machine", name),
		},
	)
	an.find = func(a netip.Addr, names []string) (addressPlace, error) { return w.findPlace(name, a, names) }
	if _, err := nodes.Informer().AddEventHandler(onEachEvent(an.Wake)); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- an.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
		factory.Shutdown()
	})
	w.stops[name] = end
	w.Cleanup(end)
}

// powerOff turns off a machine.
func (w *testCluster) powerOff(name string) {
	w.fakeNetwork.mu.Lock()
	w.poweredOff[name] = true
	w.fakeNetwork.mu.Unlock()
	w.mu.Lock()
	w.disconnected[name] = true
	w.mu.Unlock()
	w.stops[name]()
}

// waitUntil waits until a condition is true, and returns how long that took.
func (w *testCluster) waitUntil(what string, so func() bool) time.Duration {
	w.Helper()
	start := time.Now()
	for !so() {
		if time.Since(start) > 30*time.Second {
			w.Fatalf("not seen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}

func (w *testCluster) update(s *corev1.Service) {
	w.Helper()
	if _, err := w.CoreV1().Services(s.Namespace).Update(w.Context(), s, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) leases() int {
	w.Helper()
	list, err := w.CoordinationV1().Leases(metav1.NamespaceSystem).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}

// checkNoGap checks that an address is always answered, until end is called.
func (w *testCluster) checkNoGap(a netip.Addr) (end func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if w.answeringMachine(a) == "" {
				w.Errorf("no machine answers for %s", a)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

var testAddress = netip.MustParseAddr("10.0.0.10")

func threeNodes() []runtime.Object { return []runtime.Object{node("x"), node("y"), node("z")} }

func (w *testCluster) startAll() {
	for _, name := range []string{"x", "y", "z"} {
		w.startMachine(name)
	}
}
