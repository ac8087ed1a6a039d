package pod

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Node holds the facts about the node that the downward API exposes to pods.
type Node struct {
	Name        string
	IPs         []string
	Allocatable corev1.ResourceList
}

// Field returns a field of a pod by its path, as defined by the downward API.
func Field(p *corev1.Pod, path string, node Node) (string, error) {
	if base, key, ok := subscript(path); ok {
		switch base {
		case "metadata.annotations":
			return p.Annotations[key], nil
		case "metadata.labels":
			return p.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q has no subscript", path)
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.annotations":
		return formatMap(p.Annotations), nil
	case "metadata.labels":
		return formatMap(p.Labels), nil
	case "spec.nodeName":
		return node.Name, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		if len(node.IPs) > 0 {
			return node.IPs[0], nil
		}
		return "", nil
	case "status.hostIPs":
		return strings.Join(node.IPs, ","), nil
	case "status.podIP":
		if p.Status.PodIP == "" && p.Spec.HostNetwork && len(node.IPs) > 0 {
			return node.IPs[0], nil
		}
		return p.Status.PodIP, nil
	case "status.podIPs":
		var ips []string
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func subscript(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return base, key, ok
}

func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, k+"="+strconv.Quote(v))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// ResourceField returns a request or limit of a container in units of the selector's divisor, rounded up. A missing
// limit is replaced by the node's allocatable amount.
func ResourceField(
	p *corev1.Pod,
	spec *corev1.Container,
	ref *corev1.ResourceFieldSelector,
	node Node,
) (string, error) {
	if ref.ContainerName != "" {
		spec = findContainer(p, ref.ContainerName)
		if spec == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	which, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || which != "limits" && which != "requests" {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	list := spec.Resources.Requests
	if which == "limits" {
		list = spec.Resources.Limits
	}
	q, set := list[corev1.ResourceName(name)]
	if !set && which == "limits" {
		q = node.Allocatable[corev1.ResourceName(name)]
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return strconv.FormatInt(divideUp(q.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(divideUp(q.Value(), divisor.Value()), 10), nil
}

func divideUp(a, b int64) int64 {
	if b <= 0 {
		return a
	}
	return (a + b - 1) / b
}

func findContainer(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return findEphemeral(p, name)
}

// Find returns the container of a pod with the given name, or nil.
func Find(p *corev1.Pod, name string) *corev1.Container { return findContainer(p, name) }
