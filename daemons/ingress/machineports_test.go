package ingress

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/ingress/route/gateway"
	"clusterctl/daemons/run"
)

// gatewayTenants are Gateways with their own addresses, each in its own namespace.
type gatewayTenants struct {
	*watch
	t *testing.T
}

func newGatewayTenants(t *testing.T, kept map[string][]net.Listener) *gatewayTenants {
	cfg := settings(t)
	cfg.BindAddress, cfg.GatewayAddresses, cfg.GatewayPorts = "127.0.0.77", config.OfLoadBalancer, "20000-20003"
	engine, err := newEngine(cfg, run.NewEnv(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	at := newEntrySockets(cfg, engine, kept, slog.New(slog.DiscardHandler))
	t.Cleanup(at.close)
	w := &gatewayTenants{newWatch(cfg, engine, at), t}
	w.gatewayBuilder.SetClass(
		"c",
		&gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: gateway.Controller},
		},
	)
	w.hasGatewayAPI = true
	return w
}

// addGateway adds a Gateway "web" in a namespace, and its service, which assigns it a port of the machines.
func (w *gatewayTenants) addGateway(namespace string, created int64, port int) {
	g := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              "web",
			UID:               "1",
			Generation:        1,
			CreationTimestamp: metav1.Unix(created, 0),
		},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "c",
			Listeners:        []gatewayv1.Listener{{Name: "l", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}
	w.gatewayBuilder.SetGateway(route.Key{Namespace: namespace, Name: "web"}, g)
	w.setService(serviceAt(namespace, "gateway-web", created, port), false)
	w.updateTable(context.Background())
}

func serviceAt(namespace, name string, created int64, ports ...int) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              name,
			Labels:            map[string]string{gatewayLabel: "web"},
			CreationTimestamp: metav1.Unix(created, 0),
		}}
	for i, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: int32(80 + i), TargetPort: intstr.FromInt(port)})
	}
	return s
}

// portOf returns the port of the machine on which a Gateway is served, or 0.
func (w *gatewayTenants) portOf(namespace string) int {
	own := w.sockets.sockets[gateway.Entry{Gateway: route.Key{Namespace: namespace, Name: "web"}, Port: 80}]
	if own == nil || own.ln == nil {
		return 0
	}
	return own.ln.Addr().(*net.TCPAddr).Port
}

func (w *gatewayTenants) check(what string, want map[string]int) {
	w.t.Helper()
	for namespace, port := range want {
		if got := w.portOf(namespace); got != port {
			w.t.Errorf("%s: the Gateway of %s is served on %d, want %d", what, namespace, got, port)
		}
	}
}

// assignedPorts returns the ports that the leader assigns to the Gateways, by namespace.
func (w *gatewayTenants) assignedPorts() map[string]int {
	list, _, _ := w.wantedServices(w.cfg)
	out := map[string]int{}
	for _, a := range list {
		out[a.name.Namespace] = a.ports[0].TargetPort.IntValue()
	}
	return out
}

// A user who may write the service of a Gateway cannot take a port outside of the range, nor another Gateway's port.
func TestAGatewayCannotTakeTheMachinePortOfAnother(t *testing.T) {
	w := newGatewayTenants(t, nil)
	w.addGateway("shop", 20, 20000)
	w.addGateway("thief", 10, 20001) // the older one
	w.check("at first", map[string]int{"shop": 20000, "thief": 20001})

	free, err := net.Listen("tcp", "127.0.0.77:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	w.addGateway("thief", 10, port)
	w.check("a port of the machine's", map[string]int{"shop": 20000, "thief": 0})
	if got := w.assignedPorts()["thief"]; got < 20001 || got > 20003 {
		t.Errorf("in the place of port %d the thief is given %d", port, got)
	}

	w.addGateway("thief", 10, 20000)
	w.check("another's port", map[string]int{"shop": 20000, "thief": 0})
	if got := w.assignedPorts(); got["shop"] != 20000 || got["thief"] <= 20000 || got["thief"] > 20003 {
		t.Errorf("two that say 20000 are given %v", got)
	}

	// A service that belongs to no Gateway takes no port.
	w.setService(serviceAt("thief", "many", 5, 20001, 20002, 20003), false)
	w.addGateway("late", 30, 0)
	if got := w.assignedPorts()["late"]; got < 20001 || got > 20003 {
		t.Errorf("the late one is given %d", got)
	}
}

// A port stays assigned across a restart of the daemon. A kept socket of an earlier release, which does not record its
// owner, goes to the Gateway that claims the port.
func TestAMachinePortStaysWithItsGateway(t *testing.T) {
	listening := func() net.Listener {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.77", strconv.Itoa(20000)))
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	shop, before := gateway.Entry{Gateway: route.Key{Namespace: "shop", Name: "web"}, Port: 80}, listening()
	w := newGatewayTenants(t, map[string][]net.Listener{socketName(shop, 20000): {before}})
	w.addGateway("thief", 10, 20000)
	w.addGateway("shop", 20, 20000)
	w.check("what the process before had", map[string]int{"shop": 20000, "thief": 0})
	if own := w.sockets.sockets[shop]; own == nil || own.ln != before {
		t.Error("the socket that was kept is not used")
	}
	w.sockets.close()
	w = newGatewayTenants(t, map[string][]net.Listener{"gateway-20000": {listening()}})
	w.addGateway("shop", 20, 20000)
	w.check("of a former release", map[string]int{"shop": 20000})
}
