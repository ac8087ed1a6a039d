package packet

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/provision/host"
)

func newPod(name, node string, addresses ...string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

func newService(name, ip string) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{
			Selector:   map[string]string{"app": name},
			ClusterIPs: []string{ip},
			Ports:      []corev1.ServicePort{{Name: "web", Port: 80, NodePort: 30080}},
		},
	}
}

func newCluster() *Cluster {
	node, port, name := "n2", int32(8080), "web"
	return &Cluster{
		Pods: []corev1.Pod{
			newPod("web", "n1", "10.244.0.2", "fd00::2"),
			newPod("db", "n2", "10.244.1.7"),
			newPod("new", "n1"),
		},
		Namespaces: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
		},
		Nodes: []corev1.Node{
			{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Status: corev1.NodeStatus{
					Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
				},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "n2"},
				Status: corev1.NodeStatus{
					Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}},
				},
			},
		},
		Services: []corev1.Service{newService("db", "10.96.0.7"), newService("none", "10.96.0.8")},
		Slices: []discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      "db-x",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "db"},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.7"}, NodeName: &node}},
		}},
	}
}

func TestRoutesAreResolved(t *testing.T) {
	for name, c := range map[string]struct{ from, to, protocol, want, refused string }{
		"a pod to a service": {"pod/shop/web", "service/shop/db:80", "tcp", "n1 10.244.0.2 10.96.0.7:80 " +
			"10.244.1.7:8080@n2", ""},
		"by the port's name": {"po/shop/web", "svc/shop/db:web", "TCP", "n1 10.244.0.2 10.96.0.7:80 " +
			"10.244.1.7:8080@n2", ""},
		"its only port": {"pod/shop/web", "service/shop/db", "tcp", "n1 10.244.0.2 10.96.0.7:80 " +
			"10.244.1.7:8080@n2", ""},
		"a service's address": {"pod/shop/web", "10.96.0.7:80", "tcp", "n1 10.244.0.2 10.96.0.7:80 " +
			"10.244.1.7:8080@n2", ""},
		"a node's port": {"outside", "192.0.2.1:30080", "tcp", " 192.0.2.1:30080 " +
			"10.244.1.7:8080@n2", ""},
		"a service without endpoints": {"node/n1", "service/shop/none:80", "tcp", "n1 10.96.0.8:80", ""},
		"a pod to a pod": {"pod/shop/web", "pod/shop/db:http", "tcp", "n1 10.244.0.2 10.244.1.7:8080 " +
			"10.244.1.7:8080@n2", ""},
		"a node": {"pod/shop/web", "node/n2:10250", "tcp", "n1 10.244.0.2 192.0.2.2:10250 " +
			"192.0.2.2:10250@n2", ""},
		"an address of no one":         {"pod/shop/web", "[2001:db8::1]:53", "udp", "n1 fd00::2 [2001:db8::1]:53", ""},
		"a family that is not there":   {"pod/shop/db", "[2001:db8::1]:53", "udp", "", "no address of the family"},
		"a pod without an address":     {"pod/shop/new", "10.96.0.7:80", "tcp", "", "has no address yet"},
		"no such pod":                  {"pod/web", "10.96.0.7:80", "tcp", "", "no pod web in namespace default"},
		"no such port":                 {"pod/shop/web", "service/shop/db:81", "tcp", "", "it has 80"},
		"no such port of the protocol": {"pod/shop/web", "service/shop/db:80", "udp", "", "no port of UDP"},
		"no port":                      {"pod/shop/web", "node/n2", "tcp", "", "not the number of a port"},
		"another protocol":             {"pod/shop/web", "10.96.0.7:80", "sctp", "", "tcp or udp"},
		"something else":               {"shop", "10.96.0.7:80", "tcp", "", "not where a packet can come from"},
		"something else's port": {"pod/shop/web", "deployment/shop/db:80", "tcp", "", "none of pod, service " +
			"and node"},
	} {
		r, err := Resolve(newCluster(), c.from, c.to, c.protocol)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := r.Sender
		if r.Source.IsValid() {
			got += " " + r.Source.String()
		}
		got += " " + r.Target.String()
		for _, e := range r.Ends {
			got += " " + e.At.String() + "@" + e.Node
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// newSighting returns a sighting of packet number 7, from a text LINK in|out FROM TO.
func newSighting(t *testing.T, kind, text string) host.Sighting {
	t.Helper()
	w := strings.Fields(text)
	return host.Sighting{
		Link:       w[0],
		IsOutgoing: w[1] == "out",
		Kind:       kind,
		From:       netip.MustParseAddrPort(w[2]),
		To:         netip.MustParseAddrPort(w[3]),
		Number:     7,
	}
}

//style:long a table of sightings, with the verdict on each
func TestVerdictsNameWhereThePacketEnded(t *testing.T) {
	const sender, target, end = "10.244.0.2:40000", "10.96.0.7:80", "10.244.1.7:8080"
	n1, n2 := map[string]string{
		"10.244.0.2": "veth1",
		"10.244.1.7": "eth0",
	}, map[string]string{
		"10.244.0.2": "eth0",
		"10.244.1.7": "veth2",
	}
	request := func(list ...string) (out []host.Sighting) {
		for i, text := range list {
			s := newSighting(t, host.KindRequest, text)
			s.At = time.Duration(i)
			out = append(out, s)
		}
		return out
	}
	left := request("veth1 in "+sender+" "+target, "eth0 out "+sender+" "+end)
	came := request("eth0 in "+sender+" "+end, "veth2 out "+sender+" "+end)
	back := []host.Sighting{newSighting(t, host.KindAccepted, "veth2 in "+end+" "+sender)}
	policy := func(name, app string, kind networkingv1.PolicyType) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
				PolicyTypes: []networkingv1.PolicyType{kind},
			},
		}
	}
	other := host.Sighting{
		Link:   "veth1",
		Kind:   host.KindRequest,
		From:   netip.MustParseAddrPort("10.244.0.9:1"),
		To:     netip.MustParseAddrPort(target),
		Number: 8,
	}
	for name, c := range map[string]struct {
		policies []networkingv1.NetworkPolicy
		outcome  string
		n1, n2   []host.Sighting
		routes   map[string]string // of n2, if they differ from the default
		to       string
		failed   string // the error of asking n2
		arrived  bool
		verdict  string
		reason   string
	}{
		"it arrives": {outcome: host.OutcomeConnected, n1: append(left, other), n2: append(came, back...),
			arrived: true, verdict: "pod shop/db answers"},
		"it never left": {outcome: host.OutcomeSilent, verdict: "It does not leave shop/web"},
		"egress": {outcome: host.OutcomeSilent, n1: left[:1],
			policies: []networkingv1.NetworkPolicy{policy("p", "web", "Egress")}, verdict: "comes in at veth1 of n1, " +
				"and is dropped", reason: "shop/p isolates pod shop/web for egress"},
		"ingress": {outcome: host.OutcomeSilent, n1: left, n2: came[:1],
			policies: []networkingv1.NetworkPolicy{policy("p", "db", "Ingress")}, verdict: "comes in at eth0 of n2, " +
				"and is dropped", reason: "shop/p isolates pod shop/db for ingress"},
		"no policy of the API": {outcome: host.OutcomeSilent, n1: left, n2: came[:1], verdict: "eth0 of n2, and is " +
			"dropped", reason: "no policy of the API denies it"},
		"no route": {outcome: host.OutcomeSilent, n1: left, n2: came[:1], routes: map[string]string{"10.244.1.7": ""},
			verdict: "eth0 of n2, and is dropped", reason: "n2 has no route to 10.244.1.7"},
		"between the machines": {outcome: host.OutcomeSilent, n1: left, verdict: "leaves n1 by eth0 and does not " +
			"come in at n2", reason: "firewall"},
		"the other is off": {outcome: host.OutcomeSilent, n1: left, failed: "no route to host",
			verdict: "n2 could not be asked"},
		"no rules of the proxy": {outcome: host.OutcomeSilent,
			n1: request("veth1 in "+sender+" "+target, "eth0 out "+sender+" "+target), verdict: "still to the " +
				"service's address", reason: "kube-proxy"},
		"nobody listens": {outcome: host.OutcomeRefused, n1: left, n2: came, verdict: "where nothing listens " +
			"on port 8080"},
		"it does not answer": {outcome: host.OutcomeSilent, n1: left, n2: came, verdict: "which does not answer"},
		"the answer is lost": {outcome: host.OutcomeSilent, n1: left, n2: append(came, back...),
			verdict: "answer is lost behind veth2 of n2"},
		"no endpoints": {outcome: host.OutcomeRefused, to: "service/shop/none:80",
			n1: request("veth1 in " + sender + " 10.96.0.8:80"), verdict: "no endpoint that is " +
				"ready", reason: "app=none"},
		"somebody outside": {outcome: host.OutcomeSilent, to: "198.51.100.1:80",
			n1: request("veth1 in "+sender+" 198.51.100.1:80", "eth0 out 192.0.2.1:40000 "+
				"198.51.100.1:80"), verdict: "outside of the cluster, and nothing comes back"},
		"a machine refuses": {outcome: host.OutcomeRefused, to: "node/n2:81",
			n1: request("veth1 in "+sender+" 192.0.2.2:81", "eth0 out 192.0.2.1:40000 "+
				"192.0.2.2:81"), n2: request("eth0 in 192.0.2.1:40000 " +
				"192.0.2.2:81"), verdict: "192.0.2.2:81 (node n2), where nothing listens on port 81"},
		"a machine is silent": {outcome: host.OutcomeSilent, to: "node/n2:81",
			n1: request("veth1 in "+sender+" 192.0.2.2:81", "eth0 out 192.0.2.1:40000 "+
				"192.0.2.2:81"), n2: request("eth0 in 192.0.2.1:40000 " +
				"192.0.2.2:81"), verdict: "192.0.2.2:81 (node n2), which does not answer"},
		"it could not be sent": {outcome: host.OutcomeFailed, verdict: "It was not sent"},
	} {
		k := newCluster()
		k.Policies = c.policies
		to := c.to
		if to == "" {
			to = "service/shop/db:80"
		}
		r, err := Resolve(k, "pod/shop/web", to, "tcp")
		if err != nil {
			t.Fatal(err)
		}
		routes := c.routes
		if routes == nil {
			routes = n2
		}
		w := Read(k, r, SendOutcome{Outcome: c.outcome, Local: netip.MustParseAddrPort(sender)}, []NodeReport{
			{
				Node:   "n1",
				Traced: host.Traced{Sightings: c.n1, Routes: n1},
			}, {Node: "n2", Traced: host.Traced{Sightings: c.n2, Routes: routes}, Error: c.failed},
		})
		if w.Arrived != c.arrived || !strings.Contains(w.Verdict, c.verdict) ||
			!strings.Contains(strings.Join(w.Reasons, "\n"), c.reason) {
			t.Errorf("%s: %v %s %q", name, w.Arrived, w.Verdict, w.Reasons)
		}
		for _, h := range w.Hops {
			if h.From == other.From {
				t.Errorf("%s: a packet of another sender is reported: %+v", name, h)
			}
		}
	}
}
