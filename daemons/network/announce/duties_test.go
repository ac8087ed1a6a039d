package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/api/loadbalancer"
)

// service returns a Service with addresses assigned by the controller.
func service(name, ips string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{
			Conditions: []metav1.Condition{{Type: loadbalancer.Condition, Status: metav1.ConditionTrue}},
		},
	}
	for _, ip := range strings.Fields(ips) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func setLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func setNotReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

func setExcluded(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }

func setDeleted(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }

func setCordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// endpointsOn returns a localNodes according to which all Services have endpoints on the given nodes.
func endpointsOn(nodes string) localNodes {
	holders := map[string]bool{}
	for _, n := range strings.Fields(nodes) {
		holders[n] = true
	}
	return func(*corev1.Service, netip.Addr) map[string]bool { return holders }
}

func TestOnlyEligibleMachinesMayHoldAnAddress(t *testing.T) {
	for name, c := range map[string]struct {
		of    *corev1.Service
		nodes []*corev1.Node
		ready string
		want  string // sorted
	}{
		"all that are ready": {service("a", "10.0.0.1"),
			[]*corev1.Node{node("x"), node("y"), node("z", setNotReady)}, "", "x y"},
		"not those that are excluded": {service("a", "10.0.0.1"), []*corev1.Node{node("x"), node("y", setExcluded)},
			"", "x"},
		"not those that go": {service("a", "10.0.0.1"), []*corev1.Node{node("x"), node("y", setDeleted)}, "",
			"x"},
		"also where no pod is to come": {service("a", "10.0.0.1"), []*corev1.Node{node("x"), node("y", setCordoned)},
			"", "x y"},
		"all, where none is ready": {service("a", "10.0.0.1"),
			[]*corev1.Node{node("x", setNotReady), node("y", setNotReady), node("z", setExcluded)}, "", "x y"},
		"local, where there are pods": {service("a", "10.0.0.1", setLocal),
			[]*corev1.Node{node("x"), node("y"), node("z")}, "y z", "y z"},
		"local, and not ready": {service("a", "10.0.0.1", setLocal),
			[]*corev1.Node{node("x"), node("y", setNotReady)}, "x y", "x"},
		"local, where there is none": {service("a", "10.0.0.1", setLocal), []*corev1.Node{node("x")}, "", ""},
		"local, where there was one": {service("a", "10.0.0.1", setLocal), []*corev1.Node{node("x")}, "gone", ""},
		"of a Service of another class": {service("a", "10.0.0.1",
			func(s *corev1.Service) { class := "other"; s.Spec.LoadBalancerClass = &class }), []*corev1.Node{node("x")},
			"", "-"},
		"given by another controller": {service("a", "10.0.0.1",
			func(s *corev1.Service) { s.Status.Conditions = nil }), []*corev1.Node{node("x")}, "", "-"},
		"of one that is none any more": {service("a", "10.0.0.1",
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }), []*corev1.Node{node("x")}, "", "-"},
		"of one that has not got one yet": {service("a", ""), []*corev1.Node{node("x")}, "", "-"},
	} {
		duties := Duties([]*corev1.Service{c.of}, c.nodes, endpointsOn(c.ready), notRouted)
		got := "-"
		if len(duties) == 1 {
			got = strings.Join(slices.Sorted(slices.Values(duties[0].Machines)), " ")
		}
		if got != c.want || len(duties) > 1 {
			t.Errorf("%s: %v, want %s", name, duties, c.want)
		}
	}
}

// An address shared by Local Services is only announced by machines with endpoints of all of them.
func TestASharedAddressNeedsEndpointsOfAllServices(t *testing.T) {
	nodes := []*corev1.Node{node("x"), node("y"), node("z")}
	duties := Duties(
		[]*corev1.Service{service("a", "10.0.0.1", setLocal), service("b", "10.0.0.1", setLocal),
			service("c", "10.0.0.1")},
		nodes,
		func(s *corev1.Service, a netip.Addr) map[string]bool {
			return endpointsOn(map[string]string{"a": "x y", "b": "y z"}[s.Name])(s, a)
		},
		notRouted,
	)
	if len(duties) != 1 || !slices.Equal(duties[0].Machines, []string{"y"}) || !duties[0].Local {
		t.Errorf("%v", duties)
	}
}

// Each address has one lease, and each local address its own. No machine is the best for more slots than its share.
func TestAddressesAreSpread(t *testing.T) {
	current := loadbalancer.Leases()
	rapid.Check(t, func(r *rapid.T) {
		var nodes []*corev1.Node
		for i := range rapid.IntRange(1, 12).Draw(r, "nodes") {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i)))
		}
		var services []*corev1.Service
		want := map[netip.Addr]bool{}
		for i := range rapid.IntRange(0, 100).Draw(r, "services") {
			ip := fmt.Sprintf("10.0.%d.%d", i/10, rapid.IntRange(1, 250).Draw(r, "ip"))
			s := service(fmt.Sprint(i), ip)
			if rapid.Bool().Draw(r, "local") {
				setLocal(s)
			}
			services = append(services, s)
			want[netip.MustParseAddr(ip)] = true
		}
		duties := Duties(services, nodes, endpointsOn("n0"), notRouted)
		leases, best := map[string]bool{}, map[string]int{}
		for _, d := range duties {
			if leases[d.Lease] || !slices.Contains(current, d.Lease) {
				r.Fatalf("lease %s exists twice, or no machine may hold it", d.Lease)
			}
			leases[d.Lease] = true
			if d.Local && len(d.Addresses) != 1 || !d.Local && len(d.Machines) != len(nodes) {
				r.Fatalf("%v", d)
			}
			if !d.Local {
				best[d.Machines[0]]++
			}
			for _, a := range d.Addresses {
				if !want[a] {
					r.Fatalf("%s is there twice, or is no Service's", a)
				}
				delete(want, a)
			}
		}
		if len(want) > 0 {
			r.Fatalf("missing: %v", want)
		}
		for name, n := range best {
			if share := (loadbalancer.Slots + len(nodes) - 1) / len(nodes); n > share {
				r.Fatalf("%s is the best for %d slots, its share is %d", name, n, share)
			}
		}
	})
}

// Adding a machine moves few addresses.
func TestANewMachineMovesFewAddresses(t *testing.T) {
	moved := 0
	for n := 2; n < 30; n++ {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("worker-%d", i))
		}
		before, after := rankBySlot(names[:n-1]), rankBySlot(names)
		for i := range before {
			if before[i][0] != after[i][0] {
				moved++
			}
		}
	}
	if maximum := 40; moved > maximum {
		t.Errorf("%d slots move while 28 machines come, more than %d", moved, maximum)
	}
}

// notRouted reports for each address that BGP does not announce it.
func notRouted(netip.Addr) bool { return false }
