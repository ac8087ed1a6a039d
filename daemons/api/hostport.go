package api

import corev1 "k8s.io/api/core/v1"

// HostPort is a port of the machine that a pod uses.
type HostPort struct {
	Protocol corev1.Protocol
	IP       string // everyAddress means all addresses of the machine
	Port     int32
}

const everyAddress = "0.0.0.0"

// HostPorts returns the host ports that a pod uses while it runs.
func HostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			port := HostPort{p.Protocol, p.HostIP, p.HostPort}
			if port.IP == "" {
				port.IP = everyAddress
			}
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			out = append(out, port)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// Conflicts reports whether two pods on one machine cannot both have these ports: port and protocol are equal, and the
// addresses are equal or one of them means all.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol &&
		(p.IP == o.IP || p.IP == everyAddress || o.IP == everyAddress)
}
