package packet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/provision/host"
)

// Outside is the name of this computer as a sender.
const Outside = "outside"

// Resolve returns the route between two ends. from is pod/NAMESPACE/NAME, node/NAME or outside. to is
// pod/NAMESPACE/NAME:PORT, service/NAMESPACE/NAME:PORT, node/NAME:PORT or ADDRESS:PORT. The namespace defaults to
// default. The port is a number, or a name that the pod or service has for one.
func Resolve(c *Cluster, from, to, protocol string) (*Route, error) {
	r := &Route{From: from, To: to, Protocol: strings.ToUpper(protocol)}
	if r.Protocol != host.TCP && r.Protocol != host.UDP {
		return nil, fmt.Errorf("%q is not a protocol that can be tried: tcp or udp", protocol)
	}
	families, err := r.sender(c, from)
	if err != nil {
		return nil, err
	}
	if err := r.receiver(c, to, families); err != nil {
		return nil, err
	}
	return r, nil
}

// sender sets the sender of the route. contains reports whether the sender has an address of the same IP family.
func (r *Route) sender(c *Cluster, from string) (contains func(netip.Addr) bool, err error) {
	kind, namespace, name, ok := splitName(from)
	switch {
	case from == Outside:
		return func(netip.Addr) bool { return true }, nil
	case ok && kind == "node":
		if namespace != "" {
			return nil, fmt.Errorf("%q: a node has no namespace", from)
		}
		if _, err := c.node(name); err != nil {
			return nil, err
		}
		r.Sender = name
		return func(netip.Addr) bool { return true }, nil
	case ok && kind == "pod":
		pod, err := c.pod(namespace, name)
		if err != nil {
			return nil, err
		}
		r.Pod, r.Sender = pod, pod.Spec.NodeName
		own := podAddresses(pod)
		if len(own) == 0 {
			return nil, fmt.Errorf("%s has no address yet: it is %s", from, pod.Status.Phase)
		}
		if pod.Spec.HostNetwork {
			return func(netip.Addr) bool { return true }, nil
		}
		r.Source = own[0]
		return func(a netip.Addr) bool {
			i := slices.IndexFunc(own, func(o netip.Addr) bool { return o.Is4() == a.Is4() })
			if i >= 0 {
				r.Source = own[i]
			}
			return i >= 0
		}, nil
	}
	return nil, fmt.Errorf("%q is not where a packet can come from: pod/NAMESPACE/NAME, node/NAME or %s", from, Outside)
}

func (r *Route) receiver(c *Cluster, to string, reachable func(netip.Addr) bool) error {
	if at, err := netip.ParseAddrPort(to); err == nil {
		r.Target = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		c.setEnds(r)
	} else if err := r.resolveNamed(c, to, reachable); err != nil {
		return err
	}
	if !reachable(r.Target.Addr()) {
		return fmt.Errorf("%s has no address of the family of %s", r.From, r.Target.Addr())
	}
	return nil
}

func (r *Route) resolveNamed(c *Cluster, to string, reachable func(netip.Addr) bool) error {
	host, port, _ := cutPort(to)
	kind, namespace, name, ok := splitName(host)
	if !ok {
		return fmt.Errorf("%q is not where a packet can go: pod/NAMESPACE/NAME:PORT, service/NAMESPACE/NAME:PORT, "+
			"node/NAME:PORT or ADDRESS:PORT", to)
	}
	var list []netip.Addr
	var number uint16
	switch kind {
	case "pod":
		pod, err := c.pod(namespace, name)
		if err != nil {
			return err
		}
		if number, err = podPort(pod, port, r.Protocol); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		if list = podAddresses(pod); len(list) == 0 {
			return fmt.Errorf("%s has no address: it is %s", to, pod.Status.Phase)
		}
	case "node":
		node, err := c.node(name)
		if err != nil {
			return err
		}
		if number, err = parsePort(port); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				list = append(list, ip)
			}
		}
	case "service":
		service, err := c.service(namespace, name)
		if err != nil {
			return err
		}
		if number, err = servicePort(service, port, r.Protocol); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			return fmt.Errorf("%s is the name %s, and no address", to, service.Spec.ExternalName)
		}
		for _, text := range service.Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				list = append(list, ip)
			}
		}
		if len(list) == 0 {
			return fmt.Errorf("%s has no address of its own: name one of its pods", to)
		}
	default:
		return fmt.Errorf("%q: %s is none of pod, service and node", to, kind)
	}
	if len(list) == 0 {
		return fmt.Errorf("%s has no address", to)
	}
	i := max(slices.IndexFunc(list, reachable), 0)
	r.Target = netip.AddrPortFrom(list[i], number)
	c.setEnds(r)
	return nil
}

// setEnds sets where packets to the target may arrive: at the service that has the address, at a pod, or at a machine.
func (c *Cluster) setEnds(r *Route) {
	a, port := r.Target.Addr(), r.Target.Port()
	for i := range c.Services {
		s := &c.Services[i]
		for _, p := range s.Spec.Ports {
			if string(cmp.Or(p.Protocol, corev1.ProtocolTCP)) != r.Protocol {
				continue
			}
			if slices.Contains(serviceAddresses(s), a) && uint16(p.Port) == port ||
				p.NodePort != 0 && uint16(p.NodePort) == port && c.nodeWith(a) != "" {
				r.Service = s
				r.Ends = c.endpoints(s, p, a.Is4())
				return
			}
		}
	}
	for i := range c.Pods {
		p := &c.Pods[i]
		if !p.Spec.HostNetwork && !hasEnded(p) && slices.Contains(podAddresses(p), a) {
			r.Ends = []End{{At: r.Target, Node: p.Spec.NodeName, Pod: p}}
			return
		}
	}
	if node := c.nodeWith(a); node != "" {
		r.Ends = []End{{At: r.Target, Node: node}}
	}
}

// endpoints returns the endpoints of a service's port that receive its packets: the ready ones, or, if there are none,
// those that are terminating and still serve.
func (c *Cluster) endpoints(s *corev1.Service, port corev1.ServicePort, v4 bool) []End {
	var ready, ending []End
	for _, slice := range c.Slices {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name ||
			(slice.AddressType == discoveryv1.AddressTypeIPv4) != v4 {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name != nil && *p.Name != port.Name || p.Name == nil && port.Name != "" ||
				p.Protocol != nil && *p.Protocol != cmp.Or(port.Protocol, corev1.ProtocolTCP) {
				continue
			}
			for _, e := range slice.Endpoints {
				for _, text := range e.Addresses {
					ip, err := netip.ParseAddr(text)
					if err != nil {
						continue
					}
					end := End{At: netip.AddrPortFrom(ip, uint16(*p.Port)), Pod: c.podWith(ip)}
					if e.NodeName != nil {
						end.Node = *e.NodeName
					}
					switch {
					case e.Conditions.Ready == nil || *e.Conditions.Ready:
						ready = append(ready, end)
					case e.Conditions.Serving != nil && *e.Conditions.Serving:
						ending = append(ending, end)
					}
				}
			}
		}
	}
	if len(ready) == 0 {
		return ending
	}
	return ready
}

// splitName parses KIND/NAME or KIND/NAMESPACE/NAME.
func splitName(text string) (kind, namespace, name string, ok bool) {
	words := strings.Split(text, "/")
	if slices.Contains(words, "") {
		return "", "", "", false
	}
	switch len(words) {
	case 2:
		return kindOf(words[0]), "", words[1], true
	case 3:
		return kindOf(words[0]), words[1], words[2], true
	}
	return "", "", "", false
}

// kindOf also accepts the short names that kubectl accepts.
func kindOf(word string) string {
	switch word {
	case "po", "pods":
		return "pod"
	case "svc", "services":
		return "service"
	case "no", "nodes":
		return "node"
	}
	return word
}

func cutPort(text string) (host, port string, ok bool) {
	i := strings.LastIndex(text, ":")
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

func parsePort(port string) (uint16, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not the number of a port", port)
	}
	return uint16(n), nil
}

func podPort(p *corev1.Pod, port, protocol string) (uint16, error) {
	for _, c := range p.Spec.Containers {
		for _, at := range c.Ports {
			if string(cmp.Or(at.Protocol, corev1.ProtocolTCP)) == protocol &&
				(at.Name == port && port != "" || port == "" && len(c.Ports) == 1) {
				return uint16(at.ContainerPort), nil
			}
		}
	}
	if port == "" {
		return 0, errors.New("to which port? NAME:PORT")
	}
	return parsePort(port)
}

func servicePort(s *corev1.Service, port, protocol string) (uint16, error) {
	var names []string
	for _, p := range s.Spec.Ports {
		if string(cmp.Or(p.Protocol, corev1.ProtocolTCP)) != protocol {
			continue
		}
		if port == "" && len(s.Spec.Ports) == 1 || p.Name == port && port != "" || strconv.Itoa(int(p.Port)) == port {
			return uint16(p.Port), nil
		}
		names = append(names, strconv.Itoa(int(p.Port)))
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("the service has no port of %s", protocol)
	}
	return 0, fmt.Errorf("the service has no such port of %s: it has %s", protocol, strings.Join(names, ", "))
}
