package loadbalancer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/config"
)

// newService returns an IPv4 Service with port 80, created age seconds before the others.
func newService(name string, age int, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              name,
			UID:               types.UID(name),
			Annotations:       map[string]string{},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0)),
		},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeLoadBalancer,
			IPFamilies:     []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			Selector: map[string]string{
				"app": "web",
			},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func withAddresses(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: loadbalancer.Condition, Status: metav1.ConditionTrue}}
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func withAnnotation(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

func withPort(n int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].Port = n }
}

func inNamespace(namespace string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Namespace = namespace }
}

func withLocalPolicy(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func withSelector(app string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": app} }
}

func withFamilyPolicy(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
}

func withIPv6Only(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }

func parsePools(t testing.TB, texts map[string]string) []config.Pool {
	t.Helper()
	list, err := config.DecodePools(texts)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

//style:long a table of Services, with the addresses of each
func TestAddressDecisions(t *testing.T) {
	const (
		share = loadbalancer.ShareAnnotation
		pool  = loadbalancer.PoolAnnotation
		asks  = loadbalancer.AddressesAnnotation
	)
	require, prefer := withFamilyPolicy(corev1.IPFamilyPolicyRequireDualStack),
		withFamilyPolicy(corev1.IPFamilyPolicyPreferDualStack)
	list := parsePools(t, map[string]string{
		"b-office": `{"addresses":["10.0.0.10-10.0.0.12","fd00::10-fd00::11"]}`,
		"c-lab":    `{"addresses":["10.1.0.1"],"namespaces":["lab"]}`,
		"a-edge":   `{"addresses":["192.0.2.1-192.0.2.2"],"autoAssign":false}`,
		"d-common": `{"addresses":["10.2.0.1-10.2.0.2"],"autoAssign":false,"shareBetweenNamespaces":true}`,
	})
	type all = []*corev1.Service
	for name, c := range map[string]struct {
		others all
		of     *corev1.Service
		want   string
	}{
		"the first": {nil, newService("a", 0), "10.0.0.10"},
		"the next": {all{newService("x", 9, withAddresses("10.0.0.10"))}, newService("a", 0),
			"10.0.0.11"},
		"a gap": {all{newService("x", 9, withAddresses("10.0.0.10")),
			newService("y", 9, withAddresses("10.0.0.12"))}, newService("a", 0), "10.0.0.11"},
		"it keeps what it has":                   {nil, newService("a", 0, withAddresses("10.0.0.12")), "10.0.0.12"},
		"of a pool that gives nothing by itself": {nil, newService("a", 0, withAddresses("192.0.2.2")), "192.0.2.2"},
		"of a pool that is for others by now":    {nil, newService("a", 0, withAddresses("10.1.0.1")), "10.1.0.1"},
		"no pool has it any more": {nil, newService("a", 0, withAddresses("10.9.9.9")), "10.0.0.10; " +
			"withdrawn 10.9.9.9"},
		"none is free": {all{newService("x", 9,
			withAddresses("10.0.0.10", "10.0.0.11", "10.0.0.12"))}, newService("a", 0), "all IPv4 addresses of " +
			"b-office are in use"},
		"none is free, but one of its own": {all{newService("x", 9,
			withAddresses("10.0.0.10", "10.0.0.11", "10.0.0.12"))}, newService("a", 0, inNamespace("lab")), "10.1.0.1"},
		"it names a pool": {nil, newService("a", 0, withAnnotation(pool, "a-edge")), "192.0.2.1"},
		"it names another pool than it has": {nil,
			newService("a", 0, withAddresses("10.0.0.10"), withAnnotation(pool, "a-edge")),
			"192.0.2.1"},
		"it names one that is full, and has": {all{newService("x", 9, withAddresses("192.0.2.1", "192.0.2.2"))},
			newService("a", 0, withAddresses("10.0.0.10"), withAnnotation(pool, "a-edge")), "10.0.0.10; all IPv4 " +
				"addresses of a-edge are " +
				"in use"},
		"it names one that is not":        {nil, newService("a", 0, withAddresses("10.0.0.10"), withAnnotation(pool, "none")), `10.0.0.10; there is no pool "none"`},
		"it names one that is not for it": {nil, newService("a", 0, withAnnotation(pool, "c-lab")), `pool "c-lab" has no IPv4 addresses for namespace shop`},
		"it names an address":             {nil, newService("a", 0, withAnnotation(asks, "10.0.0.12")), "10.0.0.12"},
		"as in the old way": {nil,
			newService("a", 0, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }), "192.0.2.2"},
		"both ways, the same": {nil,
			newService("a", 0, withAnnotation(asks, "192.0.2.2"),
				func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }),
			"192.0.2.2"},
		"both ways, not the same": {nil,
			newService("a", 0, withAddresses("10.0.0.10"), withAnnotation(asks, "10.0.0.12"),
				func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }), "10.0.0.10; both 192.0.2.2 and " +
				"10.0.0.12 are asked for; a service has one address of each family"},
		"it names what is no address": {nil, newService("a", 0, withAnnotation(asks, "10.0.0.10,web")), `annotation clusterctl.local/load-balancer-ips has "web", which is not an IP address`},
		"it names one of the other family": {nil, newService("a", 0, withAnnotation(asks, "fd00::10")),
			"annotation clusterctl.local/load-balancer-ips asks for fd00::10, and the service is not of IPv6"},
		"it names one that another has": {all{newService("x", 9, withAddresses("10.0.0.12"))},
			newService("a", 0, withAddresses("10.0.0.10"), withAnnotation(asks, "10.0.0.12")), "10.0.0.10; 10.0.0.12 " +
				"is in use by service " +
				"shop/x"},
		"it names one of no pool": {nil, newService("a", 0, withAnnotation(asks, "10.9.9.9")),
			"10.9.9.9 is of no pool"},
		"it names one that is not for it, too": {nil, newService("a", 0, withAnnotation(asks, "10.1.0.1")), `10.1.0.1 is of pool "c-lab", which is not for namespace shop`},
		"it names one of another pool":         {nil, newService("a", 0, withAnnotation(asks, "10.0.0.10"), withAnnotation(pool, "a-edge")), `10.0.0.10 is of pool "b-office", and pool "a-edge" is asked for`},
		"shared": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"),
			withPort(53))}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.12"},
		"shared with another namespace": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"),
			withPort(53), inNamespace("lab"))}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"and it names that address": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"), withPort(53), inNamespace("lab"))}, newService("a", 0, withAnnotation(share, "k"), withAnnotation(asks, "10.0.0.12")), `10.0.0.12 is in use by service lab/x, and pool "b-office" lets services of one namespace alone share an address`},
		"with another namespace, and has it": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"),
			withPort(53), inNamespace("lab"))},
			newService("a", 0, withAddresses("10.0.0.12"), withAnnotation(share, "k")), "10.0.0.12"},
		"with a third, of those that have it": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"),
			withPort(53), inNamespace("lab")),
			newService("y", 8, withAddresses("10.0.0.12"), withAnnotation(share, "k"), withPort(54))},
			newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"shared where the pool lets all namespaces": {all{newService("x", 9, withAddresses("10.2.0.1"),
			withAnnotation(share, "k"),
			withPort(53), inNamespace("lab"))},
			newService("a", 0, withAnnotation(share, "k"), withAnnotation(pool, "d-common")), "10.2.0.1"},
		"and named where the pool lets all namespaces": {all{newService("x", 9, withAddresses("10.2.0.1"),
			withAnnotation(share, "k"),
			withPort(53), inNamespace("lab"))},
			newService("a", 0, withAnnotation(share, "k"), withAnnotation(asks, "10.2.0.1")), "10.2.0.1"},
		"shared by none with this key": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "j"),
			withPort(53))}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"shared, with the same port": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"))},
			newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"shared, with the port of another kind": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"),
			func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })},
			newService("a", 0, withAnnotation(share, "k")), "10.0.0.12"},
		"shared, and one is local": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"),
			withPort(53),
			withSelector("dns"), withLocalPolicy)}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"shared, and one is local, of the same": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"), withPort(53),
			withLocalPolicy)}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.12"},
		"shared, one is local, elsewhere": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"), withPort(53),
			withLocalPolicy, inNamespace("lab"))}, newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"shared and named": {all{newService("x", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"),
			withPort(53))}, newService("a", 0, withAnnotation(share, "k"), withAnnotation(asks, "10.0.0.12")),
			"10.0.0.12"},
		"shared by two, one of which stands in it": {all{newService("x", 9, withAddresses("10.0.0.12"),
			withAnnotation(share, "k"), withPort(53)),
			newService("y", 9, withAddresses("10.0.0.12"), withAnnotation(share, "k"))},
			newService("a", 0, withAnnotation(share, "k")), "10.0.0.10"},
		"two have it, and this is the younger": {all{newService("x", 9, withAddresses("10.0.0.10"))},
			newService("a", 5, withAddresses("10.0.0.10")), "10.0.0.11"},
		"two have it, and this is the older": {all{newService("x", 5, withAddresses("10.0.0.10"))},
			newService("a", 9, withAddresses("10.0.0.10")), "10.0.0.10"},
		"two have it, of the same age": {all{newService("x", 5, withAddresses("10.0.0.10"))},
			newService("a", 5, withAddresses("10.0.0.10")), "10.0.0.10"},
		"of IPv6":                      {nil, newService("a", 0, withIPv6Only), "fd00::10"},
		"of IPv6, where there is none": {nil, newService("a", 0, withIPv6Only, withAnnotation(pool, "a-edge")), `pool "a-edge" has no IPv6 addresses for namespace shop`},
		"of both":                      {nil, newService("a", 0, require), "10.0.0.10 fd00::10"},
		"of both, where one is used up": {all{newService("x", 9, withAddresses("fd00::10", "fd00::11"))},
			newService("a", 0, require), "all IPv6 addresses of b-office are in use"},
		"of both, where one is used up, and has": {all{newService("x", 9, withAddresses("fd00::10", "fd00::11"))},
			newService("a", 0, require, withAddresses("10.0.0.12"), withAnnotation(asks, "10.0.0.11")),
			"10.0.0.12; all IPv6 addresses of " +
				"b-office are in use"},
		"of both, if possible": {all{newService("x", 9, withAddresses("fd00::10", "fd00::11"))},
			newService("a", 0, prefer), "10.0.0.10; waits"},
		"of both, if possible, and none is": {nil, newService("a", 0, prefer, withAnnotation(pool, "c-lab")), `pool "c-lab" has no IPv4 addresses for namespace shop`},
		"of both, one named": {nil, newService("a", 0, prefer, withAnnotation(asks, "fd00::11")),
			"10.0.0.10 fd00::11"},
		"of both, the named one is another's": {all{newService("x", 9, withAddresses("fd00::10"))},
			newService("a", 0, prefer, withAnnotation(asks, "fd00::10")), "10.0.0.10; fd00::10 is in use by service " +
				"shop/x"},
		"of both, one withdrawn": {nil, newService("a", 0, require, withAddresses("10.9.9.9", "fd00::11")),
			"10.0.0.10 fd00::11; " +
				"withdrawn 10.9.9.9"},
		"of both until now": {nil, newService("a", 0, withAddresses("10.0.0.11", "fd00::11")), "10.0.0.11"},
	} {
		b := newAddressBook()
		for _, s := range append(c.others, c.of) {
			b.observe(nil, s)
		}
		d := decide(c.of, list, b)
		var parts, texts []string
		for _, a := range d.addresses {
			texts = append(texts, a.String())
		}
		if len(texts) > 0 {
			parts = append(parts, strings.Join(texts, " "))
		}
		for _, a := range d.withdrawn {
			parts = append(parts, "withdrawn "+a.String())
		}
		if d.problem != "" {
			parts = append(parts, d.problem)
		} else if d.isWaiting {
			parts = append(parts, "waits")
		}
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Services and pools may change in any way, and writes may be lost. Once everything has been observed, no two Services
// have the same address unless they may share it. A Service without an address could not get one.
func TestNoAddressIsAssignedTwice(t *testing.T) {
	texts := []map[string]string{
		{"a": `{"addresses":["10.0.0.1-10.0.0.3"]}`},
		{"a": `{"addresses":["10.0.0.2-10.0.0.4"]}`, "b": `{"addresses":["10.0.1.1","fd00::1-fd00::2"]}`},
		{},
	}
	rapid.Check(t, func(r *rapid.T) {
		b, all := newAddressBook(), map[string]*corev1.Service{}
		current := parsePools(t, texts[0])
		sync := func(name string) (wrote bool) {
			s := all[name]
			if s == nil {
				return false
			}
			d := decide(s, current, b)
			b.recordWrite(s, d.addresses)
			if slices.Equal(loadbalancer.Addresses(s), d.addresses) {
				return false
			}
			after := s.DeepCopy()
			after.Status = corev1.ServiceStatus{}
			for _, a := range d.addresses {
				withAddresses(a.String())(after)
			}
			if rapid.IntRange(0, 3).Draw(r, "lost") > 0 {
				b.observe(s, after)
				all[name] = after
			}
			return true
		}
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, 6).Draw(r, "name"))
			switch before := all[name]; rapid.IntRange(0, 6).Draw(r, "step") {
			case 0:
				current = parsePools(t, rapid.SampledFrom(texts).Draw(r, "pools"))
			case 1:
				if before != nil {
					delete(all, name)
					b.observe(before, nil)
				}
			case 2, 3:
				after := newService(
					name,
					rapid.IntRange(0, 5).Draw(r, "age"),
					withPort(rapid.Int32Range(80, 81).Draw(r, "port")),
					rapid.SampledFrom([]func(*corev1.Service){
						func(*corev1.Service) {}, withLocalPolicy, withIPv6Only,
						withFamilyPolicy(corev1.IPFamilyPolicyPreferDualStack),
						withSelector("x")}).Draw(r, "kind"),
				)
				if rapid.Bool().Draw(r, "shares") {
					withAnnotation(loadbalancer.ShareAnnotation, "k")(after)
				}
				if before != nil {
					after.Status, after.CreationTimestamp = before.Status, before.CreationTimestamp
				}
				all[name] = after
				b.observe(before, after)
			default:
				sync(name)
			}
		}
		// A decision that needs no write may free an address in the book, so one more round has to pass without writes.
		for round, calm := 0, 0; calm < 2; round++ {
			calm++
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if sync(name) {
					calm = 0
				}
			}
			if round > 100 {
				r.Fatal("the decisions do not converge")
			}
		}
		checkAssignments(r, all, current, b)
	})
}

// checkAssignments checks that Services share addresses only where they may, and that the book has no other holders.
func checkAssignments(r *rapid.T, all map[string]*corev1.Service, current []config.Pool, b *addressBook) {
	for _, x := range all {
		for _, a := range loadbalancer.Addresses(x) {
			if poolOf(current, a) == nil {
				r.Fatalf("%s has %s, which no pool has", x.Name, a)
			}
			for _, y := range all {
				if x != y && slices.Contains(loadbalancer.Addresses(y), a) &&
					!canShare(holderOf(x), holderOf(y), true) {
					r.Fatalf("%s and %s both have %s", x.Name, y.Name, a)
				}
			}
		}
		if d := decide(x, current, b); len(loadbalancer.Addresses(x)) == 0 && d.problem == "" {
			r.Fatalf("%s has no address and no problem", x.Name)
		}
	}
	if len(b.byAddress) > 0 {
		for a, holders := range b.byAddress {
			for key := range holders {
				s := all[strings.TrimPrefix(key, "shop/")]
				if s == nil || !slices.Contains(loadbalancer.Addresses(s), a) {
					r.Fatalf("%s is still kept for %s", a, key)
				}
			}
		}
	}
}
