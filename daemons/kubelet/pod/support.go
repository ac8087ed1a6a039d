package pod

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SafeSysctls are the sysctls that pods may set because they only affect the pod itself. The list is upstream's.
var SafeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// CheckPod returns why this kubelet can never run a pod, or nil. Without the rejection, an unsupported field would be
// ignored silently. unsafe lists the sysctls that the node's configuration allows besides the safe ones; an entry that
// ends with * is a prefix.
func CheckPod(p *corev1.Pod, unsafe []string) *End {
	refuse := func(reason, format string, args ...any) *End {
		return &End{Phase: corev1.PodFailed, Reason: reason, Message: fmt.Sprintf(format, args...), Rejected: true}
	}
	spec := &p.Spec
	if spec.OS != nil && string(spec.OS.Name) != runtime.GOOS {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		return refuse("UserNamespacesNotSupported",
			"Pod was rejected: spec.hostUsers is false, and this node has no user namespaces for pods")
	}
	if len(spec.ResourceClaims) > 0 && IsStatic(p) {
		return refuse("FailedPrepareDynamicResources", "Pod was rejected: failed to prepare dynamic resources: static "+
			"pods do not support resource claims (resource claim %q)", spec.ResourceClaims[0].Name)
	}
	if message := forbiddenSysctl(p, unsafe); message != "" {
		return refuse("SysctlForbidden", "forbidden sysctl: %s", message)
	}
	for i := range spec.Volumes {
		if hasOtherOwners(&spec.Volumes[i]) {
			return refuse("FailedMount",
				"Pod was rejected: volume %q: files of another user than root's are not supported by this node",
				spec.Volumes[i].Name)
		}
		if e := spec.Volumes[i].EmptyDir; e != nil && e.Medium != corev1.StorageMediumDefault &&
			e.Medium != corev1.StorageMediumMemory {
			return refuse("FailedMount", "Pod was rejected: volume %q: this node has no medium %s for an emptyDir",
				spec.Volumes[i].Name, e.Medium)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if end := checkFields(&c); end != nil {
			return end
		}
	}
	return nil
}

// CheckContainer returns why this kubelet cannot run one container of a pod, or nil. It is for ephemeral containers,
// which are added while the pod runs and must not end it.
func CheckContainer(c *corev1.Container) *End {
	end := checkFields(c)
	if end != nil {
		end.Message = strings.TrimPrefix(end.Message, "Pod was rejected: ")
	}
	return end
}

// checkFields checks the fields of one container for CheckPod.
func checkFields(c *corev1.Container) *End {
	refuse := func(reason, format string, args ...any) *End {
		return &End{
			Phase:    corev1.PodFailed,
			Reason:   reason,
			Message:  "Pod was rejected: container " + c.Name + ": " + fmt.Sprintf(format, args...),
			Rejected: true,
		}
	}
	for _, m := range c.VolumeMounts {
		if len(m.BindMountOptions) > 0 {
			return refuse("UnsupportedMountOptions", "bind mount options are not supported by this node (volume %q)",
				m.Name)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil && probe.GRPC != nil && probe.GRPC.Mode != nil &&
			*probe.GRPC.Mode != corev1.GRPCProbeModePlaintext {
			return refuse("UnsupportedProbe", "gRPC probes of mode %s are not supported by this node", *probe.GRPC.Mode)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
			return refuse("UnsupportedEnvironment",
				"variable %s is to be read from a file, which this node does not do", e.Name)
		}
	}
	for _, r := range c.RestartPolicyRules {
		if r.Action != corev1.ContainerRestartRuleActionRestart {
			return refuse("UnsupportedRestartRule", "restart action %s is not supported by this node", r.Action)
		}
	}
	if sc := c.SecurityContext; sc != nil && sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount {
		return refuse("UserNamespacesNotSupported",
			"procMount %s needs user namespaces, which this node has not for pods", *sc.ProcMount)
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil && h.TCPSocket != nil {
				return refuse("UnsupportedHandler",
					"a tcpSocket is not a lifecycle handler: Kubernetes never supported it")
			}
		}
	}
	return nil
}

func forbiddenSysctl(p *corev1.Pod, unsafe []string) string {
	if p.Spec.SecurityContext == nil {
		return ""
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		allowed := slices.Contains(SafeSysctls, name) || slices.ContainsFunc(unsafe, func(pattern string) bool {
			prefix, any := strings.CutSuffix(pattern, "*")
			return name == pattern || any && strings.HasPrefix(name, prefix)
		})
		ipc := strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" ||
			strings.HasPrefix(name, "fs.mqueue.")
		switch {
		case !allowed || !ipc && !strings.HasPrefix(name, "net."):
			return fmt.Sprintf("%q not allowlisted", s.Name)
		case strings.HasPrefix(name, "net.") && p.Spec.HostNetwork:
			return fmt.Sprintf("%q not allowed with host net enabled", s.Name)
		case ipc && p.Spec.HostIPC:
			return fmt.Sprintf("%q not allowed with host ipc enabled", s.Name)
		}
	}
	return ""
}
