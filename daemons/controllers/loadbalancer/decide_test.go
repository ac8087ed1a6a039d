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

// service returns an IPv4 Service with port 80, created age seconds before the others.
func service(name string, age int, change ...func(*corev1.Service)) *corev1.Service {
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

func has(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: loadbalancer.Condition, Status: metav1.ConditionTrue}}
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func noted(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

func port(n int32) func(*corev1.Service) { return func(s *corev1.Service) { s.Spec.Ports[0].Port = n } }

func in(namespace string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Namespace = namespace }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func selects(app string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": app} }
}

func dual(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
}

func only6(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }

func pools(t testing.TB, texts map[string]string) []config.Pool {
	t.Helper()
	list, err := config.DecodePools(texts)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWhichAddressesAServiceGets(t *testing.T) {
	const (
		share = loadbalancer.ShareAnnotation
		pool  = loadbalancer.PoolAnnotation
		asks  = loadbalancer.AddressesAnnotation
	)
	require, prefer := dual(corev1.IPFamilyPolicyRequireDualStack), dual(corev1.IPFamilyPolicyPreferDualStack)
	list := pools(t, map[string]string{
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
		"the first": {nil, service("a", 0), "10.0.0.10"},
		"the next": {all{service("x", 9, has("10.0.0.10"))}, service("a", 0),
			"10.0.0.11"},
		"a gap": {all{service("x", 9, has("10.0.0.10")),
			service("y", 9, has("10.0.0.12"))}, service("a", 0), "10.0.0.11"},
		"it keeps what it has":                   {nil, service("a", 0, has("10.0.0.12")), "10.0.0.12"},
		"of a pool that gives nothing by itself": {nil, service("a", 0, has("192.0.2.2")), "192.0.2.2"},
		"of a pool that is for others by now":    {nil, service("a", 0, has("10.1.0.1")), "10.1.0.1"},
		"no pool has it any more": {nil, service("a", 0, has("10.9.9.9")), "10.0.0.10; " +
			"withdrawn 10.9.9.9"},
		"none is free": {all{service("x", 9,
			has("10.0.0.10", "10.0.0.11", "10.0.0.12"))}, service("a", 0), "all IPv4 addresses of b-office are in use"},
		"none is free, but one of its own": {all{service("x", 9,
			has("10.0.0.10", "10.0.0.11", "10.0.0.12"))}, service("a", 0, in("lab")), "10.1.0.1"},
		"it names a pool": {nil, service("a", 0, noted(pool, "a-edge")), "192.0.2.1"},
		"it names another pool than it has": {nil, service("a", 0, has("10.0.0.10"), noted(pool, "a-edge")),
			"192.0.2.1"},
		"it names one that is full, and has": {all{service("x", 9, has("192.0.2.1", "192.0.2.2"))},
			service("a", 0, has("10.0.0.10"), noted(pool, "a-edge")), "10.0.0.10; all IPv4 addresses of a-edge are " +
				"in use"},
		"it names one that is not":        {nil, service("a", 0, has("10.0.0.10"), noted(pool, "none")), `10.0.0.10; there is no pool "none"`},
		"it names one that is not for it": {nil, service("a", 0, noted(pool, "c-lab")), `pool "c-lab" has no IPv4 addresses for namespace shop`},
		"it names an address":             {nil, service("a", 0, noted(asks, "10.0.0.12")), "10.0.0.12"},
		"as in the old way": {nil,
			service("a", 0, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }), "192.0.2.2"},
		"both ways, the same": {nil,
			service("a", 0, noted(asks, "192.0.2.2"), func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }),
			"192.0.2.2"},
		"both ways, not the same": {nil,
			service("a", 0, has("10.0.0.10"), noted(asks, "10.0.0.12"),
				func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.2" }), "10.0.0.10; both 192.0.2.2 and " +
				"10.0.0.12 are asked for; a service has one address of each family"},
		"it names what is no address": {nil, service("a", 0, noted(asks, "10.0.0.10,web")), `annotation clusterctl.local/load-balancer-ips has "web", which is no IP address`},
		"it names one of the other family": {nil, service("a", 0, noted(asks, "fd00::10")),
			"annotation clusterctl.local/load-balancer-ips asks for fd00::10, and the service is not of IPv6"},
		"it names one that another has": {all{service("x", 9, has("10.0.0.12"))},
			service("a", 0, has("10.0.0.10"), noted(asks, "10.0.0.12")), "10.0.0.10; 10.0.0.12 is in use by service " +
				"shop/x"},
		"it names one of no pool": {nil, service("a", 0, noted(asks, "10.9.9.9")),
			"10.9.9.9 is of no pool"},
		"it names one that is not for it, too": {nil, service("a", 0, noted(asks, "10.1.0.1")), `10.1.0.1 is of pool "c-lab", which is not for namespace shop`},
		"it names one of another pool":         {nil, service("a", 0, noted(asks, "10.0.0.10"), noted(pool, "a-edge")), `10.0.0.10 is of pool "b-office", and pool "a-edge" is asked for`},
		"shared": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			port(53))}, service("a", 0, noted(share, "k")), "10.0.0.12"},
		"shared with another namespace": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			port(53), in("lab"))}, service("a", 0, noted(share, "k")), "10.0.0.10"},
		"and it names that address": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"), port(53), in("lab"))}, service("a", 0, noted(share, "k"), noted(asks, "10.0.0.12")), `10.0.0.12 is in use by service lab/x, and pool "b-office" lets services of one namespace alone share an address`},
		"with another namespace, and has it": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			port(53), in("lab"))}, service("a", 0, has("10.0.0.12"), noted(share, "k")), "10.0.0.12"},
		"with a third, of those that have it": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			port(53), in("lab")), service("y", 8, has("10.0.0.12"), noted(share, "k"), port(54))},
			service("a", 0, noted(share, "k")), "10.0.0.10"},
		"shared where the pool lets all namespaces": {all{service("x", 9, has("10.2.0.1"), noted(share, "k"),
			port(53), in("lab"))}, service("a", 0, noted(share, "k"), noted(pool, "d-common")), "10.2.0.1"},
		"and named where the pool lets all namespaces": {all{service("x", 9, has("10.2.0.1"), noted(share, "k"),
			port(53), in("lab"))}, service("a", 0, noted(share, "k"), noted(asks, "10.2.0.1")), "10.2.0.1"},
		"shared by none with this key": {all{service("x", 9, has("10.0.0.12"), noted(share, "j"),
			port(53))}, service("a", 0, noted(share, "k")), "10.0.0.10"},
		"shared, with the same port": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"))},
			service("a", 0, noted(share, "k")), "10.0.0.10"},
		"shared, with the port of another kind": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })},
			service("a", 0, noted(share, "k")), "10.0.0.12"},
		"shared, and one is local": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"), port(53),
			selects("dns"), local)}, service("a", 0, noted(share, "k")), "10.0.0.10"},
		"shared, and one is local, of the same": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"), port(53),
			local)}, service("a", 0, noted(share, "k")), "10.0.0.12"},
		"shared, one is local, elsewhere": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"), port(53),
			local, in("lab"))}, service("a", 0, noted(share, "k")), "10.0.0.10"},
		"shared and named": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"),
			port(53))}, service("a", 0, noted(share, "k"), noted(asks, "10.0.0.12")), "10.0.0.12"},
		"shared by two, one of which stands in it": {all{service("x", 9, has("10.0.0.12"), noted(share, "k"), port(53)),
			service("y", 9, has("10.0.0.12"), noted(share, "k"))}, service("a", 0, noted(share, "k")), "10.0.0.10"},
		"two have it, and this is the younger": {all{service("x", 9, has("10.0.0.10"))},
			service("a", 5, has("10.0.0.10")), "10.0.0.11"},
		"two have it, and this is the older": {all{service("x", 5, has("10.0.0.10"))},
			service("a", 9, has("10.0.0.10")), "10.0.0.10"},
		"two have it, of the same age": {all{service("x", 5, has("10.0.0.10"))},
			service("a", 5, has("10.0.0.10")), "10.0.0.10"},
		"of IPv6":                      {nil, service("a", 0, only6), "fd00::10"},
		"of IPv6, where there is none": {nil, service("a", 0, only6, noted(pool, "a-edge")), `pool "a-edge" has no IPv6 addresses for namespace shop`},
		"of both":                      {nil, service("a", 0, require), "10.0.0.10 fd00::10"},
		"of both, where one is used up": {all{service("x", 9, has("fd00::10", "fd00::11"))},
			service("a", 0, require), "all IPv6 addresses of b-office are in use"},
		"of both, where one is used up, and has": {all{service("x", 9, has("fd00::10", "fd00::11"))},
			service("a", 0, require, has("10.0.0.12"), noted(asks, "10.0.0.11")), "10.0.0.12; all IPv6 addresses of " +
				"b-office are in use"},
		"of both, if possible": {all{service("x", 9, has("fd00::10", "fd00::11"))},
			service("a", 0, prefer), "10.0.0.10; waits"},
		"of both, if possible, and none is": {nil, service("a", 0, prefer, noted(pool, "c-lab")), `pool "c-lab" has no IPv4 addresses for namespace shop`},
		"of both, one named": {nil, service("a", 0, prefer, noted(asks, "fd00::11")),
			"10.0.0.10 fd00::11"},
		"of both, the named one is another's": {all{service("x", 9, has("fd00::10"))},
			service("a", 0, prefer, noted(asks, "fd00::10")), "10.0.0.10; fd00::10 is in use by service shop/x"},
		"of both, one withdrawn": {nil, service("a", 0, require, has("10.9.9.9", "fd00::11")), "10.0.0.10 fd00::11; " +
			"withdrawn 10.9.9.9"},
		"of both until now": {nil, service("a", 0, has("10.0.0.11", "fd00::11")), "10.0.0.11"},
	} {
		b := newBook()
		for _, s := range append(c.others, c.of) {
			b.see(nil, s)
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
		} else if d.waits {
			parts = append(parts, "waits")
		}
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Services and pools may change in any way, and writes may be lost. Once everything has been observed, no two Services
// have the same address unless they may share it. A Service without an address could not get one.
func TestNoAddressIsOfTwo(t *testing.T) {
	texts := []map[string]string{
		{"a": `{"addresses":["10.0.0.1-10.0.0.3"]}`},
		{"a": `{"addresses":["10.0.0.2-10.0.0.4"]}`, "b": `{"addresses":["10.0.1.1","fd00::1-fd00::2"]}`},
		{},
	}
	rapid.Check(t, func(r *rapid.T) {
		b, all := newBook(), map[string]*corev1.Service{}
		current := pools(t, texts[0])
		sync := func(name string) (wrote bool) {
			s := all[name]
			if s == nil {
				return false
			}
			d := decide(s, current, b)
			b.write(s, d.addresses)
			if slices.Equal(loadbalancer.Addresses(s), d.addresses) {
				return false
			}
			is := s.DeepCopy()
			is.Status = corev1.ServiceStatus{}
			for _, a := range d.addresses {
				has(a.String())(is)
			}
			if rapid.IntRange(0, 3).Draw(r, "lost") > 0 {
				b.see(s, is)
				all[name] = is
			}
			return true
		}
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, 6).Draw(r, "name"))
			switch was := all[name]; rapid.IntRange(0, 6).Draw(r, "step") {
			case 0:
				current = pools(t, rapid.SampledFrom(texts).Draw(r, "pools"))
			case 1:
				if was != nil {
					delete(all, name)
					b.see(was, nil)
				}
			case 2, 3:
				is := service(
					name,
					rapid.IntRange(0, 5).Draw(r, "age"),
					port(rapid.Int32Range(80, 81).Draw(r, "port")),
					rapid.SampledFrom([]func(*corev1.Service){
						func(*corev1.Service) {}, local, only6, dual(corev1.IPFamilyPolicyPreferDualStack),
						selects("x")}).Draw(r, "kind"),
				)
				if rapid.Bool().Draw(r, "shares") {
					noted(loadbalancer.ShareAnnotation, "k")(is)
				}
				if was != nil {
					is.Status, is.CreationTimestamp = was.Status, was.CreationTimestamp
				}
				all[name] = is
				b.see(was, is)
			default:
				sync(name)
			}
		}
		for round, again := 0, true; again; round++ {
			again = false
			for _, name := range slices.Sorted(maps.Keys(all)) {
				again = sync(name) || again
			}
			if round > 100 {
				r.Fatal("they do not come to rest")
			}
		}
		for _, x := range all {
			for _, a := range loadbalancer.Addresses(x) {
				if poolOf(current, a) == nil {
					r.Fatalf("%s has %s, which no pool has", x.Name, a)
				}
				for _, y := range all {
					if x != y && slices.Contains(loadbalancer.Addresses(y), a) &&
						!mayShare(holderOf(x), holderOf(y), true) {
						r.Fatalf("%s and %s both have %s", x.Name, y.Name, a)
					}
				}
			}
			if d := decide(x, current, b); len(loadbalancer.Addresses(x)) == 0 && d.problem == "" {
				r.Fatalf("%s has none", x.Name)
			}
		}
		if len(b.has) > 0 {
			for a, holders := range b.has {
				for key := range holders {
					s := all[strings.TrimPrefix(key, "shop/")]
					if s == nil || !slices.Contains(loadbalancer.Addresses(s), a) {
						r.Fatalf("%s is still kept for %s", a, key)
					}
				}
			}
		}
	})
}
