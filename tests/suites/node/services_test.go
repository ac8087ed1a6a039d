package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/dns"
	"clusterctl/daemons/network"
	"clusterctl/daemons/proxy"
	"clusterctl/daemons/run"
)

// runDaemon runs a daemon until the test ends.
func (n *node) runDaemon(name string, f func(context.Context, run.Env) error) {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	env := run.NewEnv(n.log.With("daemon", name))
	go func() { done <- f(ctx, env) }()
	n.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.Errorf("%s ended with %v", name, err)
		}
	})
	n.waitFor(name, func() bool { return env.Health.Err(true) == nil })
}

// Proves S27, S28, S29, S31.
func TestServiceIsReachedByItsNameFromAPod(t *testing.T) {
	n := startNode(t)
	ctx := context.Background()
	pair, err := certs.Issue(n.ca, certs.SuperAdmin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := certs.Kubeconfig("test", "https://"+n.api, "admin", n.ca.Cert, pair)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := writeFile(t, filepath.Join(n.containerd.Dir, "admin.conf"), text)

	// The node gets its pod network, and a route to another node's.
	n.patchNode(`{"spec":{"podCIDR":"10.77.0.0/24","podCIDRs":["10.77.0.0/24"]}}`)
	n.createPod(n.newShellPod("web", "mkdir /www; echo hello >/www/index.html; httpd -f -p 8080 -h /www", nil))
	n.waitFor("the first pod", func() bool { return isReady(n.getPod("web")) })
	n.addOtherNode(ctx, t)
	netcfg := config.DefaultNetwork()
	netcfg.Kubeconfig, netcfg.HostnameOverride, netcfg.ClusterCIDR, netcfg.HealthAddress = kubeconfig, nodeName,
		[]string{
			"10.77.0.0/16",
		}, ""
	netcfg.CNIConfDir, netcfg.PolicySocket = filepath.Join(n.containerd.Dir, "written"), filepath.Join(n.containerd.Dir,
		"network.sock")
	n.runDaemon("network", func(ctx context.Context, env run.Env) error { return network.Run(ctx, netcfg, env) })
	if data, err := os.ReadFile(filepath.Join(netcfg.CNIConfDir, "10-clusterctl.conflist")); err != nil ||
		!strings.Contains(string(data), "10.77.0.0/24") {
		t.Errorf("CNI configuration: %s, %v", data, err)
	}
	if out, _ := exec.Command("ip", "route").Output(); !strings.Contains(string(out), "10.77.1.0/24 via 10.66.0.200") {
		t.Errorf("routes are\n%s", out)
	}
	dnscfg := config.DefaultDNS()
	dnscfg.Kubeconfig, dnscfg.BindAddress, dnscfg.NodeName, dnscfg.NodeIP, dnscfg.HealthAddress = kubeconfig,
		"0.0.0.0:5353", nodeName, "10.77.0.1", ""
	n.runDaemon("dns", func(ctx context.Context, env run.Env) error { return dns.Run(ctx, dnscfg, env) })
	proxycfg := config.DefaultProxy()
	proxycfg.Kubeconfig, proxycfg.HostnameOverride, proxycfg.ClusterCIDR = kubeconfig, nodeName, []string{
		"10.77.0.0/16",
	}
	n.runDaemon("kube-proxy", func(ctx context.Context, env run.Env) error { return proxy.Run(ctx, proxycfg, env) })

	n.createService("kube-system", "kube-dns", "10.96.0.10",
		corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
	n.createService("default", "web", "10.96.0.77",
		corev1.ServicePort{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP})
	name, port, proto, here := "http", int32(8080), corev1.ProtocolTCP, nodeName
	if _, err := n.admin.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{n.getPod("web").Status.PodIP}, NodeName: &here}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.createPod(n.newShellPod("client", "sleep 1000", nil))
	n.waitFor("the client pod", func() bool { return isReady(n.getPod("client")) })
	ask := func(pod, address string) (string, error) {
		out, _, err := n.exec(pod, nil, "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 3 `+address)
		return out, err
	}
	for _, address := range []string{"10.96.0.77 80", "10.77.0.1 30080"} {
		n.waitFor(address, func() bool { out, _ := ask("client", address); return strings.HasSuffix(out, "hello\n") })
	}
	// The pod's resolv.conf names the name server, and a short name finds the service.
	for _, name := range []string{"web.default.svc.cluster.local", "web"} {
		n.waitFor(name, func() bool {
			out, _, _ := n.exec("client", nil, "nslookup", "-type=a", name)
			return strings.Contains(out, "10.96.0.77")
		})
	}
	// A pod can connect to itself through its own service.
	if out, err := ask("web", "10.96.0.77 80"); !strings.HasSuffix(out, "hello\n") {
		t.Errorf("itself: %q, %v", out, err)
	}
}

// addOtherNode adds a node at an address of an own interface.
func (n *node) addOtherNode(ctx context.Context, t *testing.T) {
	other, err := n.admin.CoreV1().
		Nodes().
		Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"},
			Spec: corev1.NodeSpec{PodCIDR: "10.77.1.0/24", PodCIDRs: []string{"10.77.1.0/24"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"link add nodes type veth peer name others", "link set others up",
		"addr add 10.66.0.1/24 dev nodes", "link set nodes up"} {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", words, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "nodes").Run() })
	other.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.66.0.200"}}
	if _, err := n.admin.CoreV1().Nodes().UpdateStatus(ctx, other, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) createService(namespace, name, ip string, ports ...corev1.ServicePort) {
	n.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
	for _, p := range ports {
		if p.NodePort != 0 {
			s.Spec.Type = corev1.ServiceTypeNodePort
		}
	}
	if _, err := n.admin.CoreV1().Services(namespace).Create(context.Background(), s,
		metav1.CreateOptions{}); err != nil {
		n.Fatal(err)
	}
}
