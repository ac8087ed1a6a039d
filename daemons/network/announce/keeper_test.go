package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/api/loadbalancer"
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
				have, err := w.Tracker().Get(a.GetResource(), a.GetNamespace(), m.GetName())
				if err != nil {
					return true, nil, err
				}
				if have.(metav1.Object).GetResourceVersion() != m.GetResourceVersion() {
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
	began := time.Now()
	for !so() {
		if time.Since(began) > 30*time.Second {
			w.Fatalf("not seen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
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
				w.Errorf("nobody answers for %s", a)
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

func TestAnAddressMovesWithinTwoSecondsWhenItsMachineDies(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	first := w.answeringMachine(testAddress)
	w.powerOff(first)
	took := w.waitUntil("an answer by another",
		func() bool { return w.answeringMachine(testAddress) != "" && w.answeringMachine(testAddress) != first })
	if t.Logf("%s died, and %s answers after %s", first, w.answeringMachine(testAddress), took); took > 2*time.Second {
		t.Errorf("another machine answers after %s", took)
	}
}

// A planned move between working machines causes no interruption.
func TestAPlannedMoveLosesNoPacket(t *testing.T) {
	t.Parallel()
	web := service("web", testAddress.String())
	w := newTestCluster(t, append(threeNodes(), web)...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	for _, change := range []func(*corev1.Node){setExcluded, setNotReady} {
		end := w.checkNoGap(testAddress)
		first := w.answeringMachine(testAddress)
		if _, err := w.CoreV1().Nodes().Update(t.Context(), node(first, change), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.waitUntil("an answer by another", func() bool { return w.answeringMachine(testAddress) != first })
		end()
		w.waitUntil("one holder", func() bool { return len(w.currentHolders(testAddress)) == 1 })
	}
}

// A machine that returns takes over its share from working machines after some time.
func TestTheBestMachineTakesOverFromAWorkingOne(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	duties := Duties([]*corev1.Service{service("web", testAddress.String())},
		[]*corev1.Node{node("x"), node("y"), node("z")}, endpointsOn(""), notRouted)
	best := duties[0].Machines[0]
	w.findPlace = func(machine string, a netip.Addr, _ []string) (addressPlace, error) {
		s := fakePlace{w.fakeNetwork, machine, a}
		if machine == best {
			return slowPlace{s}, nil // it gets the lease before it has the address
		}
		return s, nil
	}
	for _, name := range duties[0].Machines[1:] {
		w.startMachine(name)
	}
	took := w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	if took < leaseTime/2 {
		t.Errorf("one that is not the best has it after %s", took)
	}
	end := w.checkNoGap(testAddress)
	began := time.Now()
	w.startMachine(best)
	w.waitUntil("an answer by the best", func() bool { return w.answeringMachine(testAddress) == best })
	if since := time.Since(began); since < takeoverDelay {
		t.Errorf("the best has taken over after %s", since)
	}
	w.waitUntil("one holder", func() bool { return slices.Equal(w.currentHolders(testAddress), []string{best}) })
	end()
}

// A restarted daemon still has its addresses, even if the restart takes longer than the failover after a power loss.
func TestARestartedDaemonKeepsItsAddresses(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	first := w.answeringMachine(testAddress)
	end := w.checkNoGap(testAddress)
	for _, away := range []time.Duration{0, leaseTime + answeringGrace/2} {
		w.stops[first]()
		back := time.Now().Add(away)
		w.waitUntil("time that passes", func() bool { return time.Now().After(back) })
		w.startMachine(first)
		held := time.Now().Add(2*leaseTime + answeringGrace)
		w.waitUntil("time that passes", func() bool { return time.Now().After(held) })
		if who := w.answeringMachine(testAddress); who != first {
			t.Errorf("%s had it and was away for %s, %s has it", first, away, who)
		}
	}
	end()
}

// A new Service during a daemon's restart does not move the daemon's addresses, even if its address sorts before them.
func TestANewAddressMovesNoAddressOfAStoppedDaemon(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	first := w.answeringMachine(testAddress)
	w.stops[first]()
	lower := netip.MustParseAddr("9.0.0.1")
	for hashText(lower.String())%loadbalancer.Slots != hashText(testAddress.String())%loadbalancer.Slots {
		lower = lower.Next()
	}
	back := time.Now().Add(leaseTime + answeringGrace/2)
	if _, err := w.CoreV1().Services("shop").Create(t.Context(), service("new", lower.String()),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("time that passes", func() bool { return time.Now().After(back) })
	w.startMachine(first)
	w.waitUntil("an answer for the new one", func() bool { return w.answeringMachine(lower) != "" })
	if who := w.answeringMachine(testAddress); who != first {
		t.Errorf("%s had it, %s has it", first, who)
	}
}

// Another machine takes the addresses of a stopped daemon before the kernel of its machine drops them.
func TestAStoppedDaemonIsReplacedWithoutAGap(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	first := w.answeringMachine(testAddress)
	end := w.checkNoGap(testAddress)
	w.stops[first]()
	w.waitUntil("an answer by another", func() bool { return w.answeringMachine(testAddress) != first })
	w.waitUntil("one holder", func() bool { return !slices.Contains(w.currentHolders(testAddress), first) })
	end()
}

// Addresses stay while no API server responds. A machine that is cut off alone yields to the machine that has taken
// over.
func TestAnAddressStaysWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()))...)
	w.startAll()
	w.waitUntil("an answer", func() bool { return w.answeringMachine(testAddress) != "" })
	first := w.answeringMachine(testAddress)
	end := w.checkNoGap(testAddress)
	w.isDown.Store(true)
	over := time.Now().Add(3 * addressLifetime)
	w.waitUntil("time that passes", func() bool { return time.Now().After(over) })
	w.isDown.Store(false)
	over = time.Now().Add(2 * renewInterval)
	w.waitUntil("time that passes", func() bool { return time.Now().After(over) })
	if who := w.answeringMachine(testAddress); who != first {
		t.Errorf("%s had it, %s has it", first, who)
	}
	w.mu.Lock()
	w.disconnected[first] = true
	w.mu.Unlock()
	w.waitUntil("an answer by another", func() bool { return w.answeringMachine(testAddress) != first })
	w.waitUntil("one holder", func() bool { return !slices.Contains(w.currentHolders(testAddress), first) })
	end()
}

// Leases are created with the first Service and deleted with the last. Services can change while their addresses are
// held.
func TestLeasesExistWhileTheyAreNeeded(t *testing.T) {
	t.Parallel()
	web := service("web", "")
	w := newTestCluster(t, append(threeNodes(), web)...)
	w.startAll()
	if n := w.leases(); n != 0 {
		t.Errorf("%d leases without a Service", n)
	}
	w.update(service("web", "10.0.0.10 fd00::10"))
	six := netip.MustParseAddr("fd00::10")
	w.waitUntil("answers for both",
		func() bool { return w.answeringMachine(testAddress) != "" && w.answeringMachine(six) != "" })
	w.update(service("web", "10.0.0.11"))
	w.waitUntil("the other one, and not the first", func() bool {
		w.fakeNetwork.mu.Lock()
		none := len(w.holders(testAddress))+len(w.holders(six)) == 0
		w.fakeNetwork.mu.Unlock()
		return none && w.answeringMachine(netip.MustParseAddr("10.0.0.11")) != ""
	})
	if err := w.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("no lease", func() bool { return w.leases() == 0 })
}

// An address of a Service with externalTrafficPolicy Local is on a machine with endpoints of the address's family.
func TestALocalAddressIsOnAMachineWithEndpointsOfItsFamily(t *testing.T) {
	t.Parallel()
	slice := func(family discoveryv1.AddressType, node string) *discoveryv1.EndpointSlice {
		meta := metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web-" + strings.ToLower(string(family)),
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		}
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  meta,
			AddressType: family,
			Endpoints:   []discoveryv1.Endpoint{{NodeName: &node}},
		}
	}
	six := netip.MustParseAddr("fd00::10")
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String()+" "+six.String(), setLocal),
		slice(discoveryv1.AddressTypeIPv4, "x"), slice(discoveryv1.AddressTypeIPv6, "y"))...)
	w.startAll()
	w.waitUntil("answers by the machines with the endpoints",
		func() bool { return w.answeringMachine(testAddress) == "x" && w.answeringMachine(six) == "y" })
	if _, err := w.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice(discoveryv1.AddressTypeIPv6, "z"),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("an answer for the one that moved",
		func() bool { return w.answeringMachine(testAddress) == "x" && w.answeringMachine(six) == "z" })
}

// The address of a Service with externalTrafficPolicy Local follows its pods.
func TestALocalAddressFollowsItsPods(t *testing.T) {
	t.Parallel()
	slice := func(nodes ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4,
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      "web-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
			},
		}
		for _, n := range []string{"x", "y", "z"} {
			ready := slices.Contains(nodes, n)
			s.Endpoints = append(s.Endpoints,
				discoveryv1.Endpoint{NodeName: &n, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
		}
		return s
	}
	w := newTestCluster(t, append(threeNodes(), service("web", testAddress.String(), setLocal), slice("y"))...)
	w.startAll()
	for _, at := range []string{"y", "z", "x"} {
		if _, err := w.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice(at),
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.waitUntil("an answer by "+at, func() bool { return w.answeringMachine(testAddress) == at })
	}
	end := w.checkNoGap(testAddress)
	w.update(service("web", testAddress.String()))
	w.waitUntil("one lease", func() bool { return w.leases() == 1 && w.answeringMachine(testAddress) != "" })
	end()
}
