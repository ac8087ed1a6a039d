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

// lan simulates a network: which machines have which addresses, and which machine the neighbours believe to have them.
type lan struct {
	mu       sync.Mutex
	has      map[netip.Addr]map[string]time.Time // until when each machine's kernel has it
	believed map[netip.Addr]string               // machine that announced it last
	gone     map[string]bool                     // machines without power
}

// spot simulates an address on one machine of the network.
type spot struct {
	*lan
	self    string
	address netip.Addr
}

func (s spot) Set(lifetime time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has[s.address] == nil {
		s.has[s.address] = map[string]time.Time{}
	}
	s.has[s.address][s.self] = time.Now().Add(lifetime)
	return nil
}

func (s spot) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.has[s.address], s.self)
	return nil
}

func (s spot) Announce() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone[s.self] {
		s.believed[s.address] = s.self
	}
	return nil
}

func (s spot) Taken(time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.holders(s.address) {
		if other != s.self {
			return true, nil
		}
	}
	return false, nil
}

func (s spot) Interface() string { return "eth0" }

// slow is a spot on an overloaded machine.
type slow struct{ spot }

func (s slow) Set(lifetime time.Duration) error {
	time.Sleep(handover - 50*time.Millisecond)
	return s.spot.Set(lifetime)
}

// holders returns the sorted names of the powered machines whose kernel has an address. The caller holds mu.
func (l *lan) holders(a netip.Addr) (all []string) {
	for name, until := range l.has[a] {
		if time.Now().Before(until) && !l.gone[name] {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// having is holders for callers that do not hold mu.
func (l *lan) having(a netip.Addr) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holders(a)
}

// answers returns the machine that responds to packets to an address, or "" if none does. A powered machine forwards
// packets that reach it, even if it no longer has the address.
func (l *lan) answers(a netip.Addr) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if who := l.believed[a]; who != "" && !l.gone[who] && len(l.holders(a)) > 0 {
		return who
	}
	return ""
}

// world is a set of machines on a network with an API server.
type world struct {
	testing.TB
	*lan
	*fake.Clientset
	down atomic.Bool // the API server does not respond to requests for leases
	mu   sync.Mutex
	cut  map[string]bool // machines without a connection to the API server
	find func(machine string, a netip.Addr, names []string) (place, error)
	ends map[string]func()
	log  *slog.Logger
}

func newWorld(t testing.TB, objects ...runtime.Object) *world {
	w := &world{
		TB: t,
		lan: &lan{
			has:      map[netip.Addr]map[string]time.Time{},
			believed: map[netip.Addr]string{},
			gone:     map[string]bool{},
		},
		Clientset: fake.NewClientset(
			objects...),
		cut:  map[string]bool{},
		ends: map[string]func(){},
		log:  slog.New(slog.DiscardHandler),
	}
	w.find = func(machine string, a netip.Addr, _ []string) (place, error) { return spot{w.lan, machine, a}, nil }
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
					return true, nil, apierrors.NewConflict(
						a.GetResource().GroupResource(),
						m.GetName(),
						errors.New("changed"),
					)
				}
			}
			m.SetResourceVersion(fmt.Sprint(version.Add(1)))
			return false, nil, nil
		})
	}
	return w
}

// start runs a machine's announcer until it is stopped.
func (w *world) start(name string) {
	factory := informers.New(w.Clientset)
	nodes := informers.Nodes(factory)
	leases := fake.NewClientset()
	leases.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		cut := w.cut[name]
		w.mu.Unlock()
		if cut || w.down.Load() {
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
	an.find = func(a netip.Addr, names []string) (place, error) { return w.find(name, a, names) }
	if _, err := nodes.Informer().AddEventHandler(tell(an.Poke)); err != nil {
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
	w.ends[name] = end
	w.Cleanup(end)
}

// kill turns off a machine.
func (w *world) kill(name string) {
	w.lan.mu.Lock()
	w.gone[name] = true
	w.lan.mu.Unlock()
	w.mu.Lock()
	w.cut[name] = true
	w.mu.Unlock()
	w.ends[name]()
}

// until waits until a condition is true, and returns how long that took.
func (w *world) until(what string, so func() bool) time.Duration {
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

func (w *world) update(s *corev1.Service) {
	w.Helper()
	if _, err := w.CoreV1().Services(s.Namespace).Update(w.Context(), s, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) leases() int {
	w.Helper()
	list, err := w.CoordinationV1().Leases(metav1.NamespaceSystem).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}

// gapless checks that an address is always answered, until end is called.
func (w *world) gapless(a netip.Addr) (end func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if w.answers(a) == "" {
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

var vip = netip.MustParseAddr("10.0.0.10")

func three() []runtime.Object { return []runtime.Object{node("x"), node("y"), node("z")} }

func (w *world) all() {
	for _, name := range []string{"x", "y", "z"} {
		w.start(name)
	}
}

func TestAnAddressMovesWithinTwoSecondsWhenItsMachineDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	first := w.answers(vip)
	w.kill(first)
	took := w.until("an answer by another", func() bool { return w.answers(vip) != "" && w.answers(vip) != first })
	if t.Logf("%s died, and %s answers after %s", first, w.answers(vip), took); took > 2*time.Second {
		t.Errorf("another machine answers after %s", took)
	}
}

// A planned move between working machines causes no interruption.
func TestAPlannedMoveLosesNothing(t *testing.T) {
	t.Parallel()
	web := service("web", vip.String())
	w := newWorld(t, append(three(), web)...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	for _, change := range []func(*corev1.Node){excluded, notReady} {
		end := w.gapless(vip)
		first := w.answers(vip)
		if _, err := w.CoreV1().Nodes().Update(t.Context(), node(first, change), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.until("an answer by another", func() bool { return w.answers(vip) != first })
		end()
		w.until("one holder", func() bool { return len(w.having(vip)) == 1 })
	}
}

// A machine that returns takes over its share from working machines after some time.
func TestTheBestTakesOverFromOneThatLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	duties := Duties(
		[]*corev1.Service{service("web", vip.String())},
		[]*corev1.Node{node("x"), node("y"), node("z")},
		on(""),
		nobody,
	)
	best := duties[0].Machines[0]
	w.find = func(machine string, a netip.Addr, _ []string) (place, error) {
		s := spot{w.lan, machine, a}
		if machine == best {
			return slow{s}, nil // it gets the lease before it has the address
		}
		return s, nil
	}
	for _, name := range duties[0].Machines[1:] {
		w.start(name)
	}
	took := w.until("an answer", func() bool { return w.answers(vip) != "" })
	if took < leaseTime/2 {
		t.Errorf("one that is not the best has it after %s", took)
	}
	end := w.gapless(vip)
	began := time.Now()
	w.start(best)
	w.until("an answer by the best", func() bool { return w.answers(vip) == best })
	if since := time.Since(began); since < settled {
		t.Errorf("the best has taken over after %s", since)
	}
	w.until("one holder", func() bool { return slices.Equal(w.having(vip), []string{best}) })
	end()
}

// A restarted daemon still has its addresses, even if the restart takes longer than the failover after a power loss.
func TestADaemonThatComesBackGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	first := w.answers(vip)
	end := w.gapless(vip)
	for _, away := range []time.Duration{0, leaseTime + mercy/2} {
		w.ends[first]()
		back := time.Now().Add(away)
		w.until("time that passes", func() bool { return time.Now().After(back) })
		w.start(first)
		held := time.Now().Add(2*leaseTime + mercy)
		w.until("time that passes", func() bool { return time.Now().After(held) })
		if who := w.answers(vip); who != first {
			t.Errorf("%s had it and was away for %s, %s has it", first, away, who)
		}
	}
	end()
}

// A new Service during a daemon's restart does not move the daemon's addresses, even if its address sorts before them.
func TestANewAddressMovesNoneOfADaemonThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	first := w.answers(vip)
	w.ends[first]()
	lower := netip.MustParseAddr("9.0.0.1")
	for hash(lower.String())%loadbalancer.Slots != hash(vip.String())%loadbalancer.Slots {
		lower = lower.Next()
	}
	back := time.Now().Add(leaseTime + mercy/2)
	if _, err := w.CoreV1().Services("shop").Create(t.Context(), service("new", lower.String()),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("time that passes", func() bool { return time.Now().After(back) })
	w.start(first)
	w.until("an answer for the new one", func() bool { return w.answers(lower) != "" })
	if who := w.answers(vip); who != first {
		t.Errorf("%s had it, %s has it", first, who)
	}
}

// Another machine takes the addresses of a stopped daemon before the kernel of its machine drops them.
func TestADaemonThatStaysAwayIsReplacedWithoutAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	first := w.answers(vip)
	end := w.gapless(vip)
	w.ends[first]()
	w.until("an answer by another", func() bool { return w.answers(vip) != first })
	w.until("one holder", func() bool { return !slices.Contains(w.having(vip), first) })
	end()
}

// Addresses stay while no API server responds. A machine that is cut off alone yields to the machine that has taken
// over.
func TestAnAddressStaysWhileNoServerAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(three(), service("web", vip.String()))...)
	w.all()
	w.until("an answer", func() bool { return w.answers(vip) != "" })
	first := w.answers(vip)
	end := w.gapless(vip)
	w.down.Store(true)
	over := time.Now().Add(3 * lifetime)
	w.until("time that passes", func() bool { return time.Now().After(over) })
	w.down.Store(false)
	over = time.Now().Add(2 * renewal)
	w.until("time that passes", func() bool { return time.Now().After(over) })
	if who := w.answers(vip); who != first {
		t.Errorf("%s had it, %s has it", first, who)
	}
	w.mu.Lock()
	w.cut[first] = true
	w.mu.Unlock()
	w.until("an answer by another", func() bool { return w.answers(vip) != first })
	w.until("one holder", func() bool { return !slices.Contains(w.having(vip), first) })
	end()
}

// Leases are created with the first Service and deleted with the last. Services can change while their addresses are
// held.
func TestLeasesAreThereWhileTheyAreNeeded(t *testing.T) {
	t.Parallel()
	web := service("web", "")
	w := newWorld(t, append(three(), web)...)
	w.all()
	if n := w.leases(); n != 0 {
		t.Errorf("%d leases without a Service", n)
	}
	w.update(service("web", "10.0.0.10 fd00::10"))
	six := netip.MustParseAddr("fd00::10")
	w.until("answers for both", func() bool { return w.answers(vip) != "" && w.answers(six) != "" })
	w.update(service("web", "10.0.0.11"))
	w.until("the other one, and not the first", func() bool {
		w.lan.mu.Lock()
		none := len(w.holders(vip))+len(w.holders(six)) == 0
		w.lan.mu.Unlock()
		return none && w.answers(netip.MustParseAddr("10.0.0.11")) != ""
	})
	if err := w.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("no lease", func() bool { return w.leases() == 0 })
}

// An address of a Service with externalTrafficPolicy Local is on a machine with endpoints of the address's family.
func TestALocalAddressIsWhereEndpointsOfItsFamilyAre(t *testing.T) {
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
	w := newWorld(t, append(three(), service("web", vip.String()+" "+six.String(), local),
		slice(discoveryv1.AddressTypeIPv4, "x"), slice(discoveryv1.AddressTypeIPv6, "y"))...)
	w.all()
	w.until(
		"answers by the machines with the endpoints",
		func() bool { return w.answers(vip) == "x" && w.answers(six) == "y" },
	)
	if _, err := w.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice(discoveryv1.AddressTypeIPv6, "z"),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("an answer for the one that moved", func() bool { return w.answers(vip) == "x" && w.answers(six) == "z" })
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
			s.Endpoints = append(
				s.Endpoints,
				discoveryv1.Endpoint{NodeName: &n, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
			)
		}
		return s
	}
	w := newWorld(t, append(three(), service("web", vip.String(), local), slice("y"))...)
	w.all()
	for _, at := range []string{"y", "z", "x"} {
		if _, err := w.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice(at),
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.until("an answer by "+at, func() bool { return w.answers(vip) == at })
	}
	end := w.gapless(vip)
	w.update(service("web", vip.String()))
	w.until("one lease", func() bool { return w.leases() == 1 && w.answers(vip) != "" })
	end()
}
