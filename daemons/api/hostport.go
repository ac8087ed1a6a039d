package api

import corev1 "k8s.io/api/core/v1"

// HostPort is a port of the machine that a pod takes.
type HostPort struct {
	Protocol corev1.Protocol
	IP       string // everyAddress for all that the machine has
	Port     int32
}

const everyAddress = "0.0.0.0"

// HostPorts are those that a pod takes for as long as it runs.
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

// Conflicts reports whether two pods cannot have both on one machine: the same port and protocol, and the same address
// unless either has all of them.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol &&
		(p.IP == o.IP || p.IP == everyAddress || o.IP == everyAddress)
}
