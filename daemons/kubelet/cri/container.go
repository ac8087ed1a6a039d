package cri

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

// ContainerExtras holds the parts of a container's configuration that do not come from its spec.
type ContainerExtras struct {
	Attempt uint32
	Env     []*runtime.KeyValue
	Mounts  []*runtime.Mount
	Image   *runtime.Image    // the resolved image
	Devices []string          // CDI device names
	Volumes []*runtime.Device // block volumes
}

// Container returns the configuration of one container of a pod.
func Container(p *corev1.Pod, spec *corev1.Container, place NodeSettings,
	in ContainerExtras) (*runtime.ContainerConfig, error) {
	security, err := containerSecurity(p, spec, place, in.Image)
	if err != nil {
		return nil, err
	}
	lookup := map[string]string{}
	for _, kv := range in.Env {
		lookup[kv.Key] = string(kv.Value)
	}
	command, left, err := expandAll(spec.Command, lookup, maxProgram)
	if err != nil {
		return nil, fmt.Errorf("expand the command: %w", err)
	}
	args, _, err := expandAll(spec.Args, lookup, left)
	if err != nil {
		return nil, fmt.Errorf("expand the arguments: %w", err)
	}
	res := resources(spec.Resources.Requests, spec.Resources.Limits)
	res.Unified = place.Unified.CgroupFiles(p, spec)
	res.OomScoreAdj = pod.OOMScoreAdj(p, spec, place.Memory)
	config := &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: spec.Name, Attempt: in.Attempt},
		Image:    &runtime.ImageSpec{Image: in.Image.GetId(), UserSpecifiedImage: spec.Image},
		Command:  command, Args: args, WorkingDir: spec.WorkingDir,
		Envs: in.Env, Mounts: in.Mounts, Devices: in.Volumes, LogPath: LogPath(spec.Name, in.Attempt),
		Stdin: spec.Stdin, StdinOnce: spec.StdinOnce, Tty: spec.TTY,
		Labels: map[string]string{
			LabelPodName: p.Name, LabelPodNamespace: p.Namespace, LabelPodUID: string(p.UID),
			LabelContainerName: spec.Name,
		},
		Annotations: map[string]string{
			annotationHash: pod.Hash(spec), annotationRestarts: restartCount(in.Attempt),
			annotationMessagePath: spec.TerminationMessagePath, annotationPolicy: string(spec.TerminationMessagePolicy),
		},
		Linux: &runtime.LinuxContainerConfig{Resources: res, SecurityContext: security},
	}
	for _, id := range in.Devices {
		config.CDIDevices = append(config.CDIDevices, &runtime.CDIDevice{Name: id})
	}
	if l := spec.Lifecycle; l != nil && l.StopSignal != nil {
		if s, ok := runtime.Signal_value["SIGNAL_"+string(*l.StopSignal)]; ok {
			config.StopSignal = runtime.Signal(s)
		}
	}
	return config, nil
}

func containerSecurity(
	p *corev1.Pod,
	spec *corev1.Container,
	place NodeSettings,
	image *runtime.Image,
) (*runtime.LinuxContainerSecurityContext, error) {
	pc, cc := p.Spec.SecurityContext, spec.SecurityContext
	if pc == nil {
		pc = &corev1.PodSecurityContext{}
	}
	if cc == nil {
		cc = &corev1.SecurityContext{}
	}
	s := &runtime.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(p), SupplementalGroups: supplementalGroups(p),
		Privileged: cc.Privileged != nil &&
			*cc.Privileged, ReadonlyRootfs: cc.ReadOnlyRootFilesystem != nil && *cc.ReadOnlyRootFilesystem,
		NoNewPrivs: cc.AllowPrivilegeEscalation != nil && !*cc.AllowPrivilegeEscalation,
		Seccomp:    &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined},
	}
	if pc.SupplementalGroupsPolicy != nil && *pc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		s.SupplementalGroupsPolicy = runtime.SupplementalGroupsPolicy_Strict
	}
	user, group := firstInt64(cc.RunAsUser, pc.RunAsUser), firstInt64(cc.RunAsGroup, pc.RunAsGroup)
	switch {
	case user != nil:
		s.RunAsUser = &runtime.Int64Value{Value: *user}
	case image.GetUid() != nil:
		s.RunAsUser = image.Uid
	case image.GetUsername() != "":
		s.RunAsUsername = image.Username
	default:
		s.RunAsUser = &runtime.Int64Value{}
	}
	if group != nil {
		s.RunAsGroup = &runtime.Int64Value{Value: *group}
	}
	if nonRoot := firstBool(cc.RunAsNonRoot, pc.RunAsNonRoot); nonRoot {
		switch {
		case s.RunAsUser != nil && s.RunAsUser.Value == 0 && user != nil:
			return nil, fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", p.Name,
				spec.Name)
		case s.RunAsUser != nil && s.RunAsUser.Value == 0:
			return nil, fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)",
				p.Name, spec.Name)
		case s.RunAsUsername != "":
			return nil, fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify "+
				"user is non-root (pod: %q, container: %s)", s.RunAsUsername, p.Name, spec.Name)
		}
	}
	if sp := cc.SeccompProfile; sp != nil {
		s.Seccomp = seccompProfile(place, sp)
	} else if sp := pc.SeccompProfile; sp != nil {
		s.Seccomp = seccompProfile(place, sp)
	}
	if ap := cc.AppArmorProfile; ap != nil {
		s.Apparmor = securityProfile(corev1.SeccompProfileType(ap.Type), ap.LocalhostProfile)
	} else if ap := pc.AppArmorProfile; ap != nil {
		s.Apparmor = securityProfile(corev1.SeccompProfileType(ap.Type), ap.LocalhostProfile)
	}
	if se := cc.SELinuxOptions; se != nil {
		s.SelinuxOptions = &runtime.SELinuxOption{User: se.User, Role: se.Role, Type: se.Type, Level: se.Level}
	} else if se := pc.SELinuxOptions; se != nil {
		s.SelinuxOptions = &runtime.SELinuxOption{User: se.User, Role: se.Role, Type: se.Type, Level: se.Level}
	}
	if cc.Capabilities != nil {
		s.Capabilities = &runtime.Capability{}
		for _, c := range cc.Capabilities.Add {
			s.Capabilities.AddCapabilities = append(s.Capabilities.AddCapabilities, string(c))
		}
		for _, c := range cc.Capabilities.Drop {
			s.Capabilities.DropCapabilities = append(s.Capabilities.DropCapabilities, string(c))
		}
	}
	if !s.Privileged && (cc.ProcMount == nil || *cc.ProcMount == corev1.DefaultProcMount) {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	return s, nil
}

// These are the paths below /proc and /sys that containers must not see or change. All container runtimes use this set.
var (
	maskedPaths = []string{
		"/proc/acpi",
		"/proc/asound",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func supplementalGroups(p *corev1.Pod) []int64 {
	sc := p.Spec.SecurityContext
	if sc == nil {
		return nil
	}
	all := append([]int64(nil), sc.SupplementalGroups...)
	if sc.FSGroup != nil {
		all = append(all, *sc.FSGroup)
	}
	return all
}

// seccompProfile returns a profile in CRI's form. A Localhost profile gets its full path on the node.
func seccompProfile(place NodeSettings, p *corev1.SeccompProfile) *runtime.SecurityProfile {
	s := securityProfile(p.Type, p.LocalhostProfile)
	if s.LocalhostRef != "" {
		s.LocalhostRef = filepath.Join(place.SeccompRoot, s.LocalhostRef)
	}
	return s
}

func securityProfile(t corev1.SeccompProfileType, path *string) *runtime.SecurityProfile {
	s := &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}
	switch t {
	case corev1.SeccompProfileTypeRuntimeDefault:
		s.ProfileType = runtime.SecurityProfile_RuntimeDefault
	case corev1.SeccompProfileTypeLocalhost:
		s.ProfileType = runtime.SecurityProfile_Localhost
		if path != nil {
			s.LocalhostRef = *path
		}
	}
	return s
}

func firstInt64(values ...*int64) *int64 {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	return nil
}

func firstBool(values ...*bool) bool {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return false
}
