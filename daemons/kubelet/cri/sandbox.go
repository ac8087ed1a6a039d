package cri

import (
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

// LogRoot is the directory of the logs of all pods.
const LogRoot = "/var/log/pods"

// NodeSettings holds the node's settings for a pod's sandbox and containers.
type NodeSettings struct {
	LogRoot      string // default LogRoot
	CgroupParent string // cgroup of the pod
	Hostname     string // host name of the pod
	DNS          *runtime.DNSConfig
	Memory       int64   // memory of the machine in bytes
	Unified      *Memory // memory settings; nil with cgroup version 1
	SeccompRoot  string  // directory of Localhost profiles
}

// LogDir returns the directory of a pod's logs.
func LogDir(root string, p *corev1.Pod) string {
	if root == "" {
		root = LogRoot
	}
	return filepath.Join(root, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// LogPath returns the path of a container's log below its pod's directory.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// Sandbox returns the configuration of a pod's sandbox.
func Sandbox(p *corev1.Pod, place NodeSettings, attempt uint32) *runtime.PodSandboxConfig {
	labels := map[string]string{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	labels[LabelPodName], labels[LabelPodNamespace], labels[LabelPodUID] = p.Name, p.Namespace, string(p.UID)
	annotations := map[string]string{}
	for k, v := range p.Annotations {
		annotations[k] = v
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		annotations[AnnotationGrace] = strconv.FormatInt(*s, 10)
	}
	config := &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{
			Name:      p.Name,
			Namespace: p.Namespace,
			Uid:       string(p.UID),
			Attempt:   attempt,
		},
		LogDirectory: LogDir(place.LogRoot, p), DnsConfig: place.DNS,
		Labels: labels, Annotations: annotations,
		Linux: &runtime.LinuxPodSandboxConfig{
			CgroupParent: place.CgroupParent, Sysctls: sysctls(p),
			SecurityContext: sandboxSecurity(p, place), Resources: podResources(p), Overhead: overhead(p),
		},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = place.Hostname
		config.PortMappings = portMappings(p)
	}
	return config
}

func portMappings(p *corev1.Pod) []*runtime.PortMapping {
	var mappings []*runtime.PortMapping
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.HostPort == 0 {
					continue
				}
				m := &runtime.PortMapping{
					ContainerPort: port.ContainerPort,
					HostPort:      port.HostPort,
					HostIp:        port.HostIP,
				}
				switch port.Protocol {
				case corev1.ProtocolUDP:
					m.Protocol = runtime.Protocol_UDP
				case corev1.ProtocolSCTP:
					m.Protocol = runtime.Protocol_SCTP
				}
				mappings = append(mappings, m)
			}
		}
	}
	return mappings
}

func sysctls(p *corev1.Pod) map[string]string {
	if p.Spec.SecurityContext == nil || len(p.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	set := map[string]string{}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		set[s.Name] = s.Value
	}
	return set
}

func sandboxSecurity(p *corev1.Pod, place NodeSettings) *runtime.LinuxSandboxSecurityContext {
	s := &runtime.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p),
		Seccomp:          &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault},
	}
	privileged := func(c *corev1.SecurityContext) bool { return c != nil && c.Privileged != nil && *c.Privileged }
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		s.Privileged = s.Privileged || privileged(c.SecurityContext)
	}
	// Ephemeral containers are added later, with the same sandbox configuration.
	for _, c := range p.Spec.EphemeralContainers {
		s.Privileged = s.Privileged || privileged(c.SecurityContext)
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		return s
	}
	if sc.RunAsUser != nil && sc.RunAsGroup == nil || sc.RunAsUser != nil {
		s.RunAsUser = &runtime.Int64Value{Value: *sc.RunAsUser}
	}
	if sc.RunAsGroup != nil && sc.RunAsUser != nil {
		s.RunAsGroup = &runtime.Int64Value{Value: *sc.RunAsGroup}
	}
	s.SupplementalGroups = supplementalGroups(p)
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		s.SupplementalGroupsPolicy = runtime.SupplementalGroupsPolicy_Strict
	}
	if se := sc.SELinuxOptions; se != nil {
		s.SelinuxOptions = &runtime.SELinuxOption{User: se.User, Role: se.Role, Type: se.Type, Level: se.Level}
	}
	if sc.SeccompProfile != nil {
		s.Seccomp = seccompProfile(place, sc.SeccompProfile)
	}
	return s
}

func namespaces(p *corev1.Pod) *runtime.NamespaceOption {
	n := &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER}
	if p.Spec.HostNetwork {
		n.Network = runtime.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		n.Ipc = runtime.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		n.Pid = runtime.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		n.Pid = runtime.NamespaceMode_POD
	}
	return n
}

// podResources returns the resources of the whole pod, for runtimes that size the sandbox by them.
func podResources(p *corev1.Pod) *runtime.LinuxContainerResources {
	requests := resource.PodRequests(p, resource.PodResourcesOptions{ExcludeOverhead: true})
	limits := resource.PodLimits(p, resource.PodResourcesOptions{ExcludeOverhead: true})
	return resources(requests, limits)
}

func overhead(p *corev1.Pod) *runtime.LinuxContainerResources {
	if len(p.Spec.Overhead) == 0 {
		return nil
	}
	return resources(p.Spec.Overhead, p.Spec.Overhead)
}

// Resources returns the CPU and memory of a container in CRI's form.
func Resources(r corev1.ResourceRequirements) *runtime.LinuxContainerResources {
	size := pod.SizeOf(r)
	return &runtime.LinuxContainerResources{
		CpuShares:          size.CPUShares,
		CpuQuota:           size.CPUQuota,
		CpuPeriod:          size.CPUPeriod,
		MemoryLimitInBytes: size.Memory,
	}
}

func resources(requests, limits corev1.ResourceList) *runtime.LinuxContainerResources {
	return Resources(corev1.ResourceRequirements{Requests: requests, Limits: limits})
}
