package ingress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	shared "clusterctl/daemons/api/gateway"
	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/ingress/route/gateway"
)

// A Gateway with its own addresses has a service of type LoadBalancer in its namespace. The service's target ports are
// the ports on which every machine's proxy serves the Gateway. The leader assigns them and records them in the service.
// The service's endpoints are the machines whose proxy is ready.

// gatewayLabel is the label of a service with the name of its Gateway.
const gatewayLabel = shared.ServiceLabel

// serviceName returns the name of a Gateway's service.
func serviceName(g route.Key) route.Key {
	name := "gateway-" + g.Name
	if len(name) > 52 || strings.Contains(name, ".") {
		sum := sha256.Sum256([]byte(g.Name))
		short := strings.ReplaceAll(name, ".", "-")
		name = strings.TrimRight(short[:min(len(short), 40)], "-") + "-" + hex.EncodeToString(sum[:5])
	}
	return route.Key{Namespace: g.Namespace, Name: name}
}

// gatewayService is the wanted service of a Gateway.
type gatewayService struct {
	owner   metav1.OwnerReference
	name    route.Key
	ports   []corev1.ServicePort
	current *corev1.Service // the current service according to the watch
}

// syncServices creates and updates the service of each Gateway, with the machines as endpoints.
func (t *statusWriter) syncServices(ctx context.Context) {
	if t.cfg.GatewayAddresses == config.OfMachines {
		return
	}
	t.watch.mu.Lock()
	if !t.watch.hasGatewayAPI {
		t.watch.mu.Unlock()
		return
	}
	wanted, obsolete, problems := t.watch.wantedServices(t.cfg)
	endpoints := t.machineEndpoints()
	t.watch.mu.Unlock()
	for _, p := range problems {
		t.env.Log.Warn("give a Gateway a port of the machines", "err", p)
	}
	for _, s := range obsolete {
		if err := t.deleteService(ctx, s); err != nil && ctx.Err() == nil {
			t.env.Log.Warn("remove the service of a Gateway", "service", s.Namespace+"/"+s.Name, "err", err)
		}
	}
	for _, a := range wanted {
		if err := t.applyService(ctx, a); err != nil && ctx.Err() == nil {
			t.env.Log.Warn("write the service of a Gateway", "service", a.name, "err", err)
			continue
		}
		if err := t.applyEndpoints(ctx, a, endpoints); err != nil && ctx.Err() == nil {
			t.env.Log.Warn("write the endpoints of a Gateway", "service", a.name, "err", err)
		}
	}
}

// wantedServices returns the wanted services of all Gateways, the services to delete, and the problems. The caller
// holds mu.
func (w *watch) wantedServices(cfg config.Ingress) (list []gatewayService, obsolete []*corev1.Service,
	problems []error) {
	assigned, used := w.machinePorts(), map[int]bool{}
	for _, port := range assigned {
		used[port] = true
	}
	first, last, _ := config.PortRange(cfg.GatewayPorts)
	free := first
	ours := map[route.Key]bool{}
	for _, key := range w.gatewayBuilder.Gateways() {
		ports := w.gatewayBuilder.Ports(key)
		name := serviceName(key)
		ours[name] = true
		existing := w.routeBuilder.Backends.Service(name)
		if len(ports) == 0 || existing != nil && existing.Labels[gatewayLabel] != key.Name {
			continue
		}
		object := w.gatewayBuilder.Gateway(key)
		a := gatewayService{
			name:    name,
			current: existing,
			owner: metav1.OwnerReference{
				APIVersion: gatewayv1.SchemeGroupVersion.String(),
				Kind:       "Gateway",
				Name:       object.Name,
				UID:        object.UID,
			},
		}
		for _, port := range ports {
			target := assigned[gateway.Entry{Gateway: key, Port: port}]
			if target == 0 {
				for free <= last && used[free] {
					free++
				}
				if free > last {
					problems = append(problems, fmt.Errorf("all of %s are taken: port %d of Gateway %s has none",
						cfg.GatewayPorts, port, key))
					continue
				}
				target, used[free] = free, true
			}
			a.ports = append(
				a.ports,
				corev1.ServicePort{
					Name:       "port-" + strconv.Itoa(port),
					Protocol:   corev1.ProtocolTCP,
					Port:       int32(port),
					TargetPort: intstr.FromInt(target),
				},
			)
		}
		if len(a.ports) > 0 {
			list = append(list, a)
		}
	}
	for key, s := range w.loadBalancers {
		if of := s.Labels[gatewayLabel]; of != "" && !ours[key] &&
			w.gatewayBuilder.Gateway(route.Key{Namespace: key.Namespace, Name: of}) != nil {
			// The Gateway exists but belongs to another controller now. The garbage collector deletes the service of a
			// deleted Gateway.
			obsolete = append(obsolete, s)
		}
	}
	return list, obsolete, problems
}

// allFamilies requests an address of each family of the cluster's services, because the proxies serve all families.
const allFamilies = corev1.IPFamilyPolicyPreferDualStack

func (t *statusWriter) applyService(ctx context.Context, a gatewayService) error {
	same := func(x, y corev1.ServicePort) bool {
		return x.Name == y.Name && x.Port == y.Port && x.TargetPort == y.TargetPort
	}
	if a.current != nil && ptr.Deref(a.current.Spec.IPFamilyPolicy, "") == allFamilies &&
		slices.EqualFunc(a.current.Spec.Ports, a.ports, same) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	services := t.clients.CoreV1().Services(a.name.Namespace)
	if a.current == nil {
		_, err := services.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Name: a.name.Name,
				Labels: map[string]string{
					gatewayLabel:                             a.owner.Name,
					"gateway.networking.k8s.io/gateway-name": a.owner.Name,
				},
				OwnerReferences: []metav1.OwnerReference{a.owner},
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: a.ports, AllocateLoadBalancerNodePorts: ptr.To(false),
				IPFamilyPolicy:        ptr.To(allFamilies),
				ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, // keeps the client's address
			},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the watch will deliver it
		}
		return err
	}
	s, err := services.Get(ctx, a.name.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s.Labels[gatewayLabel] != a.owner.Name {
		return nil
	}
	s.Spec.Ports, s.Spec.IPFamilyPolicy = a.ports, ptr.To(allFamilies)
	_, err = services.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

func (t *statusWriter) deleteService(ctx context.Context, s *corev1.Service) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := t.clients.CoreV1().
		Services(s.Namespace).
		Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID,
			ResourceVersion: &s.ResourceVersion}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// machineEndpoints returns the proxies' own endpoints by family. The caller holds mu.
func (t *statusWriter) machineEndpoints() map[discoveryv1.AddressType][]discoveryv1.Endpoint {
	namespace, name, _ := strings.Cut(t.cfg.ServiceName, "/")
	out := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
	for _, s := range t.watch.slices[route.Key{Namespace: namespace, Name: name}] {
		for _, e := range s.Endpoints {
			e.Hints, e.TargetRef = nil, nil
			out[s.AddressType] = append(out[s.AddressType], e)
		}
	}
	for _, list := range out {
		slices.SortFunc(list,
			func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	}
	return out
}

func (t *statusWriter) applyEndpoints(
	ctx context.Context,
	a gatewayService,
	machines map[discoveryv1.AddressType][]discoveryv1.Endpoint,
) error {
	var ports []discoveryv1.EndpointPort
	for _, p := range a.ports {
		ports = append(
			ports,
			discoveryv1.EndpointPort{
				Name:     ptr.To(p.Name),
				Port:     ptr.To(p.TargetPort.IntVal),
				Protocol: ptr.To(corev1.ProtocolTCP),
			},
		)
	}
	for _, family := range slices.Sorted(maps.Keys(machines)) {
		name := a.name.Name + "-" + strings.ToLower(string(family))
		t.watch.mu.Lock()
		existing := t.watch.slices[a.name][name]
		t.watch.mu.Unlock()
		if existing != nil && equality.Semantic.DeepEqual(existing.Ports, ports) &&
			equality.Semantic.DeepEqual(existing.Endpoints, machines[family]) {
			continue
		}
		if err := t.writeSlice(ctx, a, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: a.name.Namespace, OwnerReferences: []metav1.OwnerReference{a.owner},
				Labels: map[string]string{discoveryv1.LabelServiceName: a.name.Name,
					discoveryv1.LabelManagedBy: managedBy},
			},
			AddressType: family, Endpoints: machines[family], Ports: ports,
		}, existing); err != nil {
			return err
		}
	}
	return nil
}

func (t *statusWriter) writeSlice(ctx context.Context, a gatewayService, s, existing *discoveryv1.EndpointSlice) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	slices := t.clients.DiscoveryV1().EndpointSlices(a.name.Namespace)
	var err error
	if existing == nil {
		_, err = slices.Create(ctx, s, metav1.CreateOptions{})
	} else {
		s.ResourceVersion = existing.ResourceVersion
		_, err = slices.Update(ctx, s, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch will deliver the current state
	}
	return err
}
