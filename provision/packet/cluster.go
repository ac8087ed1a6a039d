package packet

import (
	"cmp"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

func (c *Cluster) pod(namespace, name string) (*corev1.Pod, error) {
	namespace = cmp.Or(namespace, corev1.NamespaceDefault)
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Namespace == namespace && p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no pod %s in namespace %s", name, namespace)
}

func (c *Cluster) service(namespace, name string) (*corev1.Service, error) {
	namespace = cmp.Or(namespace, corev1.NamespaceDefault)
	for i := range c.Services {
		if s := &c.Services[i]; s.Namespace == namespace && s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no service %s in namespace %s", name, namespace)
}

func (c *Cluster) node(name string) (*corev1.Node, error) {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %s", name)
}

// podWith returns the pod that has an address of its own, or nil.
func (c *Cluster) podWith(a netip.Addr) *corev1.Pod {
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Spec.HostNetwork || hasEnded(p) {
			continue
		}
		for _, own := range podAddresses(p) {
			if own == a {
				return p
			}
		}
	}
	return nil
}

// nodeWith returns the name of the node that has an address, or "".
func (c *Cluster) nodeWith(a netip.Addr) string {
	for _, n := range c.Nodes {
		for _, own := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(own.Address); err == nil && ip == a {
				return n.Name
			}
		}
	}
	return ""
}

func podAddresses(p *corev1.Pod) (list []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// serviceAddresses returns the addresses at which a service is reached on its ports.
func serviceAddresses(s *corev1.Service) (list []netip.Addr) {
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	for _, text := range s.Spec.ClusterIPs {
		add(text)
	}
	for _, text := range s.Spec.ExternalIPs {
		add(text)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		add(i.IP)
	}
	return list
}

// hasEnded reports whether a pod has ended. Its address may then belong to another pod.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
