package announce

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/loadbalancer"
)

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
	start := time.Now()
	w.startMachine(best)
	w.waitUntil("an answer by the best", func() bool { return w.answeringMachine(testAddress) == best })
	if since := time.Since(start); since < takeoverDelay {
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
	deadline := time.Now().Add(3 * addressLifetime)
	w.waitUntil("time that passes", func() bool { return time.Now().After(deadline) })
	w.isDown.Store(false)
	deadline = time.Now().Add(2 * renewInterval)
	w.waitUntil("time that passes", func() bool { return time.Now().After(deadline) })
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
