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

// tenants are Gateways with their own addresses, each in its own namespace.
type tenants struct {
	*watch
	t *testing.T
}

func newTenants(t *testing.T, kept map[string][]net.Listener) *tenants {
	cfg := settings(t)
	cfg.BindAddress, cfg.GatewayAddresses, cfg.GatewayPorts = "127.0.0.77", config.OfLoadBalancer, "20000-20003"
	engine, err := newEngine(cfg, run.NewEnv(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	at := newFronts(cfg, engine, kept, slog.New(slog.DiscardHandler))
	t.Cleanup(at.close)
	w := &tenants{newWatch(cfg, engine, at), t}
	w.gateway.SetClass(
		"c",
		&gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: gateway.Controller},
		},
	)
	w.follows = true
	return w
}

// has adds a Gateway "web" in a namespace, and its service, which assigns it a port of the machines.
func (w *tenants) has(namespace string, created int64, port int) {
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
	w.gateway.SetGateway(route.Key{Namespace: namespace, Name: "web"}, g)
	w.service(serviceAt(namespace, "gateway-web", created, port), false)
	w.make(context.Background())
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

// on returns the port of the machine on which a Gateway is served, or 0.
func (w *tenants) on(namespace string) int {
	own := w.fronts.own[gateway.Entry{Gateway: route.Key{Namespace: namespace, Name: "web"}, Port: 80}]
	if own == nil || own.ln == nil {
		return 0
	}
	return own.ln.Addr().(*net.TCPAddr).Port
}

func (w *tenants) check(what string, want map[string]int) {
	w.t.Helper()
	for namespace, port := range want {
		if got := w.on(namespace); got != port {
			w.t.Errorf("%s: the Gateway of %s is served on %d, want %d", what, namespace, got, port)
		}
	}
}

// given returns the ports that the leader assigns to the Gateways, by namespace.
func (w *tenants) given() map[string]int {
	list, _, _ := w.wanted(w.cfg)
	out := map[string]int{}
	for _, a := range list {
		out[a.name.Namespace] = a.ports[0].TargetPort.IntValue()
	}
	return out
}

// A user who may write the service of a Gateway cannot take a port outside of the range, nor another Gateway's port.
func TestAGatewayTakesNoPortOfTheMachinesFromOthers(t *testing.T) {
	w := newTenants(t, nil)
	w.has("shop", 20, 20000)
	w.has("thief", 10, 20001) // the older one
	w.check("at first", map[string]int{"shop": 20000, "thief": 20001})

	free, err := net.Listen("tcp", "127.0.0.77:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	w.has("thief", 10, port)
	w.check("a port of the machine's", map[string]int{"shop": 20000, "thief": 0})
	if got := w.given()["thief"]; got < 20001 || got > 20003 {
		t.Errorf("in the place of port %d the thief is given %d", port, got)
	}

	w.has("thief", 10, 20000)
	w.check("another's port", map[string]int{"shop": 20000, "thief": 0})
	if got := w.given(); got["shop"] != 20000 || got["thief"] <= 20000 || got["thief"] > 20003 {
		t.Errorf("two that say 20000 are given %v", got)
	}

	// A service that belongs to no Gateway takes no port.
	w.service(serviceAt("thief", "many", 5, 20001, 20002, 20003), false)
	w.has("late", 30, 0)
	if got := w.given()["late"]; got < 20001 || got > 20003 {
		t.Errorf("the late one is given %d", got)
	}
}

// A port stays assigned across a restart of the daemon. A kept socket of an earlier release, which does not record its
// owner, goes to the Gateway that claims the port.
func TestAPortOfTheMachinesStaysWhoseItWas(t *testing.T) {
	listening := func() net.Listener {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.77", strconv.Itoa(20000)))
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	shop, was := gateway.Entry{Gateway: route.Key{Namespace: "shop", Name: "web"}, Port: 80}, listening()
	w := newTenants(t, map[string][]net.Listener{socketOf(shop, 20000): {was}})
	w.has("thief", 10, 20000)
	w.has("shop", 20, 20000)
	w.check("what the process before had", map[string]int{"shop": 20000, "thief": 0})
	if own := w.fronts.own[shop]; own == nil || own.ln != was {
		t.Error("the socket that was kept is not used")
	}
	w.fronts.close()
	w = newTenants(t, map[string][]net.Listener{"gateway-20000": {listening()}})
	w.has("shop", 20, 20000)
	w.check("of a former release", map[string]int{"shop": 20000})
}
