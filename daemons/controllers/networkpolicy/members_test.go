package networkpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/controllers/endpoints"
)

// podWithPorts returns a pod with container ports such as "http:80 dns:53/UDP". Each text is one container.
func podWithPorts(ip string, containers ...string) *corev1.Pod {
	p := newPod("shop", "", ip)
	for _, text := range containers {
		var c corev1.Container
		for _, one := range strings.Fields(text) {
			var number int32
			name, rest, _ := strings.Cut(one, ":")
			digits, protocol, _ := strings.Cut(rest, "/")
			if _, err := fmt.Sscan(digits, &number); err != nil {
				panic(err)
			}
			c.Ports = append(c.Ports,
				corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: corev1.Protocol(protocol)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// sliceTexts returns a line for each slice.
func sliceTexts(all []*discoveryv1.EndpointSlice) string {
	var lines []string
	for _, s := range all {
		line := string(s.AddressType)
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s:%d/%s", *p.Name, *p.Port, *p.Protocol)
		}
		var addresses []string
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		slices.Sort(addresses)
		lines = append(lines, line+": "+strings.Join(addresses, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func TestAddressesAreGroupedIntoSlices(t *testing.T) {
	host, ended, going := newPod("shop", "", "10.0.0.1"), newPod("shop", "", "10.0.0.2"), newPod("shop", "", "10.0.0.3")
	host.Spec.HostNetwork, ended.Status.Phase = true, corev1.PodSucceeded
	going.DeletionTimestamp = &going.CreationTimestamp
	always := corev1.ContainerRestartPolicyAlways
	sidecar, first := podWithPorts("10.0.0.1"), podWithPorts("10.0.0.2")
	sidecar.Spec.InitContainers = podWithPorts("", "http:80").Spec.Containers
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	first.Spec.InitContainers = podWithPorts("", "http:80").Spec.Containers
	for name, c := range map[string]struct {
		pods  []*corev1.Pod
		ports []string
		want  string
	}{
		"none": {nil, nil, ""},
		"both families": {[]*corev1.Pod{newPod("a", "", "10.0.0.1 fd00::1"), newPod("b", "", "10.0.0.2")}, nil,
			"IPv4: 10.0.0.1 10.0.0.2; IPv6: fd00::1"},
		"no address yet": {[]*corev1.Pod{newPod("a", "", "")}, nil, ""},
		"one address of two pods": {[]*corev1.Pod{newPod("a", "", "10.0.0.1"), newPod("b", "", "10.0.0.1")}, nil,
			"IPv4: 10.0.0.1"},
		"who counts": {[]*corev1.Pod{host, ended, going}, nil, "IPv4: 10.0.0.3"},
		"addresses that are none": {[]*corev1.Pod{newPod("a", "", "127.0.0.1 fe80::1 169.254.0.1 :: here fe80::1%eth0 "+
			"224.0.0.1 10.0.0.1")}, nil, "IPv4: 10.0.0.1"},
		"other spellings": {[]*corev1.Pod{newPod("a", "", "::ffff:10.0.0.1 "+
			"FD00:0::1")}, nil, "IPv4: 10.0.0.1; IPv6: fd00::1"},
		"by their numbers": {[]*corev1.Pod{podWithPorts("10.0.0.1", "http:80"), podWithPorts("10.0.0.2", "http:81"),
			podWithPorts("10.0.0.3", "x:1 http:80")}, []string{"http"}, "IPv4 http:80/TCP: 10.0.0.1 10.0.0.3; IPv4 " +
			"http:81/TCP: 10.0.0.2"},
		"without the name": {[]*corev1.Pod{podWithPorts("10.0.0.1", "https:443")}, []string{"http"}, ""},
		"some of the names": {[]*corev1.Pod{podWithPorts("10.0.0.1", "b:2 a:1"), podWithPorts("10.0.0.2", "a:1")},
			[]string{"a", "b"}, "IPv4 a:1/TCP b:2/TCP: 10.0.0.1; IPv4 a:1/TCP: 10.0.0.2"},
		"two protocols": {[]*corev1.Pod{podWithPorts("10.0.0.1 fd00::1", "dns:53/UDP web:80", "dns:53/TCP")},
			[]string{"dns", "web"}, "IPv4 dns:53/TCP web:80/TCP: 10.0.0.1; IPv4 dns:53/UDP: 10.0.0.1; IPv6 " +
				"dns:53/TCP web:80/TCP: fd00::1; IPv6 dns:53/UDP: fd00::1"},
		"three protocols": {[]*corev1.Pod{podWithPorts("10.0.0.1", "a:1/UDP", "a:2/TCP", "a:3/SCTP")},
			[]string{"a"}, "IPv4 a:1/UDP: 10.0.0.1; IPv4 a:2/TCP: 10.0.0.1; IPv4 a:3/SCTP: 10.0.0.1"},
		"the first of its name": {[]*corev1.Pod{podWithPorts("10.0.0.1", "http:80", "http:81")}, []string{"http"},
			"IPv4 http:80/TCP: 10.0.0.1"},
		"of containers that start": {[]*corev1.Pod{sidecar, first}, []string{"http"}, "IPv4 http:80/TCP: 10.0.0.1"},
	} {
		changes := planChanges("peers-x", groupAddresses(c.pods, c.ports), nil)
		if got := sliceTexts(changes.Create); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// However pods change, their addresses are published, each in one slice, with at most a hundred per slice. A second
// sync changes nothing. A change of one pod causes one write.
func TestSlicesFollowPodsWithFewWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now []*discoveryv1.EndpointSlice
		named := 0
		write := func(pods []*corev1.Pod) (writes int) {
			c := planChanges("peers-x", groupAddresses(pods, nil), now)
			now = applyChanges(now, c, &named)
			return len(c.Create) + len(c.Update) + len(c.Delete)
		}
		var pods []*corev1.Pod
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			pods = nil
			for i := range 300 {
				if rapid.IntRange(0, 2).Draw(t, "there") > 0 {
					pods = append(pods, newPod("shop", "", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
				}
			}
			write(pods)
			seen := map[string]int{}
			for _, s := range now {
				if len(s.Endpoints) == 0 || len(s.Endpoints) > 100 {
					t.Fatalf("a slice of %d", len(s.Endpoints))
				}
				for _, e := range s.Endpoints {
					seen[e.Addresses[0]]++
				}
			}
			for _, p := range pods {
				if seen[p.Status.PodIPs[0].IP] != 1 {
					t.Fatalf("%s is in %d slices", p.Status.PodIPs[0].IP, seen[p.Status.PodIPs[0].IP])
				}
			}
			if len(seen) != len(pods) {
				t.Fatalf("%d addresses of %d pods", len(seen), len(pods))
			}
			if n := write(pods); n > 0 {
				t.Fatalf("%d writes when nothing has changed", n)
			}
		}
		if n := write(append(pods, newPod("shop", "", "10.1.0.1"))); n != 1 {
			t.Fatalf("%d writes for a pod more", n)
		}
		if n := write(pods); n != 1 {
			t.Fatalf("%d writes for a pod less", n)
		}
	})
}

// Foreign changes to a slice are reverted.
func TestForeignChangesAreReverted(t *testing.T) {
	for name, change := range map[string]func(*discoveryv1.EndpointSlice){
		"an address more": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}})
		},
		"an address less": func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] },
		"two in one": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = append(s.Endpoints[0].Addresses, "10.9.9.9")
		},
		"a word about it":    func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(bool) },
		"a label":            func(s *discoveryv1.EndpointSlice) { s.Labels["kubernetes.io/service-name"] = "web" },
		"an address doubled": func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, s.Endpoints[0]) },
	} {
		named := 0
		now := applyChanges(nil, planChanges("peers-x", groupAddresses(newMembers(3), nil), nil), &named)
		want := sliceTexts(now)
		changed := now[0].DeepCopy()
		change(changed)
		changes := planChanges("peers-x", groupAddresses(newMembers(3), nil), []*discoveryv1.EndpointSlice{changed})
		if now = applyChanges([]*discoveryv1.EndpointSlice{changed}, changes, &named); len(changes.Update) != 1 ||
			len(now) != 1 ||
			sliceTexts(now) != want ||
			len(now[0].Labels) != 2 {
			t.Errorf("%s: %d updates, then %s", name, len(changes.Update), sliceTexts(now))
		}
	}
}

// applyChanges returns the slices after changes.
func applyChanges(now []*discoveryv1.EndpointSlice, c endpoints.Changes,
	named *int) (all []*discoveryv1.EndpointSlice) {
	removed := map[string]bool{}
	for _, s := range slices.Concat(c.Update, c.Delete) {
		removed[s.Name] = true
	}
	for _, s := range now {
		if !removed[s.Name] {
			all = append(all, s)
		}
	}
	for _, s := range c.Create {
		*named++
		s.Name = fmt.Sprint(s.GenerateName, *named)
	}
	return slices.Concat(all, c.Update, c.Create)
}
