package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// addressKind describes a kind of address.
type addressKind struct {
	protocols string
	isProxied bool // kube-proxy handles the packets
	isName    bool // the address is a name
}

const transports = "TCP UDP SCTP"

var addressKinds = map[string]addressKind{
	"ClusterIP":    {transports, true, false},
	"Name":         {transports, true, true},
	"ExternalName": {transports, true, true},
	"NodePort":     {transports, true, false},
	"FarNodePort":  {transports, true, false},
	"ExternalIP":   {transports, true, false},
	"LoadBalancer": {transports, true, false},
	"Headless":     {transports, false, true},
	"Pod":          {transports, false, false},
	"HostPort":     {transports, false, false},
	"Ingress":      {"HTTP HTTPS", false, false},
	"FarIngress":   {"HTTP HTTPS", false, false},
	"Redirected":   {"HTTP", false, false},
	"Gateway":      {"HTTP HTTPS", false, false},
	"FarGateway":   {"HTTP HTTPS", false, false},
	"OwnGateway":   {"HTTP HTTPS", true, false},
}

const serviceDomain = ".matrix.svc.cluster.local"

// targetOf returns the address for a row's packets, and the host that they request.
func (w *world) targetOf(r row, protocol string, family int) (to, host string) {
	at := func(list []string, port int) string {
		for _, text := range list {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() == (family == 4) {
				return net.JoinHostPort(text, fmt.Sprint(port))
			}
		}
		return fmt.Sprintf("none of %s", list) // no client can use this address, and the error contains it
	}
	s := w.services[r.service]
	a, b := []string{"10.99.0.21", "fd00:99::21"}, []string{w.addressB, machines.IPv6Of(w.addressB)}
	port := map[string]int{"HTTP": 80, "HTTPS": 443}[protocol]
	switch r.to {
	case "ClusterIP":
		return at(s.Spec.ClusterIPs, 80), ""
	case "Name", "ExternalName":
		return r.service + serviceDomain + ":80", ""
	case "Headless":
		return r.service + serviceDomain + ":9000", ""
	case "NodePort":
		return at(a, nodePort(s, protocol)), ""
	case "FarNodePort":
		return at(b, nodePort(s, protocol)), ""
	case "ExternalIP":
		return at(s.Spec.ExternalIPs, 80), ""
	case "LoadBalancer":
		return at(balancerAddresses(s), 80), ""
	case "Pod":
		var list []string
		for _, ip := range w.pods[r.service].Status.PodIPs {
			list = append(list, ip.IP)
		}
		return at(list, 9000), ""
	case "HostPort":
		return at(map[string][]string{"here": a, "there": b}[r.service], 8099), ""
	case "Ingress", "FarIngress":
		host = r.service + map[string]string{"HTTP": ".plain.example", "HTTPS": ".tls.example"}[protocol]
	case "Redirected":
		host = r.service + ".tls.example"
	case "Gateway", "FarGateway":
		host = r.service + ".gate.example"
	case "OwnGateway":
		return at(w.gatewayAddresses, port), r.service + ".gate.example"
	}
	if strings.HasPrefix(r.to, "Far") {
		return at(b, port), host
	}
	return at(a, port), host
}

func nodePort(s corev1.Service, protocol string) int {
	i := slices.IndexFunc(s.Spec.Ports,
		func(p corev1.ServicePort) bool { return p.Port == 80 && string(p.Protocol) == protocol })
	if i < 0 {
		return 0
	}
	return int(s.Spec.Ports[i].NodePort)
}

func balancerAddresses(s corev1.Service) (list []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, i.IP)
	}
	return list
}

// gatewayOf returns the machine's address for its own pods: the first address of their network, which follows from a
// pod's address.
func gatewayOf(pod string) string {
	ip := netip.MustParseAddr(pod)
	bits := 24
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits)
	return network.Addr().Next().String()
}

// createObjects creates the objects of the table, installs the client on the machines, and reads all addresses.
func (w *world) createObjects(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must := func(args ...string) string {
		t.Helper()
		out, err := cluster.Output(w.KubectlCommand(ctx, args...))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	image := must("get", "deployment", "-n", "shop", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	must("create", "namespace", "matrix")
	apply := w.KubectlCommand(ctx, "apply", "-n", "matrix", "-f", "-")
	apply.Stdin = strings.NewReader(otherObjects(t, image, w.outside))
	if _, err := cluster.Output(apply); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(w.Bundle, "test-web"))
	if err != nil {
		t.Fatal(err)
	}
	send := w.Lab.Machine("a").SSH(ctx, "root", "cat >/usr/local/bin/test-web && chmod 755 /usr/local/bin/test-web")
	send.Stdin = bytes.NewReader(program)
	if _, err := cluster.Output(send); err != nil {
		t.Fatal(err)
	}
	// A kernel limits the rate of the messages that refuse packets.
	for _, machine := range []string{"a", "b"} {
		if _, err := w.Lab.Machine(machine).Run(ctx, "sysctl -qw net.ipv4.icmp_ratelimit=0 "+
			"net.ipv6.icmp.ratelimit=0"); err != nil {
			t.Fatal(err)
		}
	}
	// External addresses are routed to machine a.
	for _, words := range []string{"route add 192.0.2.0/24 via 10.99.0.21", "-6 route add 2001:db8::/64 via " +
		"fd00:99::21"} {
		if _, err := cluster.Output(w.Lab.Command(ctx, "ip", strings.Fields(words)...)); err != nil {
			t.Fatal(err)
		}
	}
	must("wait", "-n", "matrix", "--for=condition=Ready", "pod", "--all", "--timeout=2m")
	if err := cluster.Eventually(ctx, time.Minute, w.readAddresses); err != nil {
		t.Fatal(err)
	}
}

// readAddresses reads the addresses of services and pods.
func (w *world) readAddresses(ctx context.Context) error {
	var services corev1.ServiceList
	var pods corev1.PodList
	for kind, list := range map[string]any{"services": &services, "pods": &pods} {
		text, err := cluster.Output(w.KubectlCommand(ctx, "get", "-n", "matrix", kind, "-o", "json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), list); err != nil {
			return err
		}
	}
	w.services, w.pods = map[string]corev1.Service{}, map[string]corev1.Pod{}
	for _, s := range services.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) < 2 {
			return fmt.Errorf("service %s has the addresses %v", s.Name, balancerAddresses(s))
		}
		w.services[s.Name] = s
	}
	for _, p := range pods.Items {
		w.pods[p.Name] = p
	}
	gates, err := cluster.Output(w.KubectlCommand(ctx, "get", "gateway", "-n", "matrix", "gate", "-o",
		"jsonpath={.status.addresses[*].value}"))
	if err != nil {
		return err
	}
	if w.gatewayAddresses = strings.Fields(gates); len(w.gatewayAddresses) < 2 {
		return fmt.Errorf("the Gateway has the addresses %v", w.gatewayAddresses)
	}
	names, err := cluster.Output(w.KubectlCommand(ctx, "get", "service", "-n", "kube-system", "kube-dns", "-o",
		"jsonpath={.spec.clusterIP}"))
	w.nameServer = net.JoinHostPort(names, "53")
	return err
}
