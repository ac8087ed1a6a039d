package pod

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// These maps list how the kubelet treats each field of a pod's spec.
var (
	// implementedFields fields are implemented.
	implementedFields = map[string]string{
		"PodSpec": "Volumes InitContainers Containers EphemeralContainers RestartPolicy " +
			"TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy " +
			"NodeName HostNetwork HostPID HostIPC ShareProcessNamespace SecurityContext ImagePullSecrets Hostname " +
			"Subdomain HostAliases Priority PriorityClassName " +
			"DNSConfig ReadinessGates RuntimeClassName EnableServiceLinks Overhead SetHostnameAsFQDN Resources " +
			"HostnameOverride ResourceClaims",
		"PodResourceClaim": "Name ResourceClaimName ResourceClaimTemplateName", "ResourceClaim": "Name Request",
		"Container": "Name Image Command Args WorkingDir Ports EnvFrom Env Resources RestartPolicy " +
			"RestartPolicyRules VolumeMounts VolumeDevices LivenessProbe ReadinessProbe " +
			"StartupProbe Lifecycle TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext " +
			"Stdin StdinOnce TTY ResizePolicy",
		"EphemeralContainer": "EphemeralContainerCommon TargetContainerName",
		"PodSecurityContext": "SELinuxOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups " +
			"SupplementalGroupsPolicy FSGroup Sysctls FSGroupChangePolicy " +
			"SeccompProfile AppArmorProfile",
		"SecurityContext": "Capabilities Privileged SELinuxOptions RunAsUser RunAsGroup RunAsNonRoot " +
			"ReadOnlyRootFilesystem AllowPrivilegeEscalation SeccompProfile AppArmorProfile",
		"Probe": "ProbeHandler InitialDelaySeconds TimeoutSeconds PeriodSeconds SuccessThreshold " +
			"FailureThreshold TerminationGracePeriodSeconds",
		"GRPCAction": "Port Service", "Lifecycle": "PostStart PreStop " +
			"StopSignal", "LifecycleHandler": "Exec HTTPGet Sleep",
		"EnvVar": "Name Value ValueFrom", "EnvVarSource": "FieldRef ResourceFieldRef ConfigMapKeyRef SecretKeyRef",
		"VolumeMount": "Name ReadOnly RecursiveReadOnly MountPath SubPath MountPropagation " +
			"SubPathExpr", "Volume": "Name VolumeSource", "VolumeDevice": "Name DevicePath",
		"VolumeSource": "HostPath EmptyDir Secret PersistentVolumeClaim DownwardAPI ConfigMap Projected " +
			"Ephemeral Image",
		"ResourceRequirements": "Limits Requests Claims", "ContainerRestartRule": "ExitCodes",
		"ContainerRestartRuleOnExitCodes": "Operator Values",
		"ContainerResizePolicy":           "ResourceName RestartPolicy", "ContainerPort": "Name HostPort " +
			"ContainerPort " +
			"Protocol HostIP",
		"HostPathVolumeSource": "Path Type", "PersistentVolumeClaimVolumeSource": "ClaimName ReadOnly",
		"ImageVolumeSource":       "Reference PullPolicy",
		"SecretVolumeSource":      "SecretName Items DefaultMode Optional",
		"ConfigMapVolumeSource":   "LocalObjectReference Items DefaultMode Optional",
		"DownwardAPIVolumeSource": "Items DefaultMode", "DownwardAPIVolumeFile": "Path FieldRef ResourceFieldRef " +
			"Mode", "KeyToPath": "Key Path Mode",
		"SecretProjection": "LocalObjectReference Items Optional", "ConfigMapProjection": "LocalObjectReference " +
			"Items Optional", "DownwardAPIProjection": "Items",
		"ServiceAccountTokenProjection": "Audience ExpirationSeconds Path",
		"ClusterTrustBundleProjection":  "Name SignerName LabelSelector Optional Path",
		"ObjectFieldSelector":           "FieldPath", "ResourceFieldSelector": "ContainerName Resource " +
			"Divisor", "LocalObjectReference": "Name",
		"LabelSelector": "MatchLabels MatchExpressions", "LabelSelectorRequirement": "Key Operator Values",
		"ConfigMapEnvSource": "LocalObjectReference Optional", "SecretEnvSource": "LocalObjectReference " +
			"Optional", "EnvFromSource": "Prefix ConfigMapRef SecretRef",
		"ConfigMapKeySelector": "LocalObjectReference Key Optional", "SecretKeySelector": "LocalObjectReference Key " +
			"Optional",
		"ProbeHandler": "Exec HTTPGet TCPSocket GRPC", "ExecAction": "Command", "HTTPHeader": "Name Value",
		"HTTPGetAction":   "Path Port Host Scheme HTTPHeaders Protocol",
		"TCPSocketAction": "Port Host", "SleepAction": "Seconds", "Capabilities": "Add Drop",
		"SELinuxOptions": "User Role Type Level",
		"SeccompProfile": "Type LocalhostProfile", "AppArmorProfile": "Type LocalhostProfile", "Sysctl": "Name Value",
		"HostAlias":    "IP Hostnames",
		"PodDNSConfig": "Nameservers Searches Options", "PodDNSConfigOption": "Name Value",
		"PodReadinessGate": "ConditionType",
		// types that are used as a whole, such as numbers in several notations
		"IntOrString": "Type IntVal StrVal", "Quantity": "i d s Format",
		"EmptyDirVolumeSource": "SizeLimit Mode", "ProjectedVolumeSource": "Sources DefaultMode",
		"VolumeProjection": "Secret DownwardAPI ConfigMap ServiceAccountToken ClusterTrustBundle",
	}
	// rejectedFields fields make the pod fail with an event, or keep it from starting with an event.
	// TestUnsupportedPodFieldsAreRejected covers those that make it fail.
	rejectedFields = map[string]string{
		"PodSpec": "OS HostUsers", "SecurityContext": "ProcMount", "LifecycleHandler": "TCPSocket",
		"EnvVarSource": "FileKeyRef", "VolumeMount": "BindMountOptions", "ContainerRestartRule": "Action",
		"GRPCAction":           "Mode",
		"EmptyDirVolumeSource": "Medium", "ProjectedVolumeSource": "DefaultUser",
		// These fail with FailedMount, because their type is not supported.
		"VolumeSource": "GCEPersistentDisk AWSElasticBlockStore GitRepo NFS ISCSI Glusterfs RBD FlexVolume Cinder " +
			"CephFS Flocker FC AzureFile VsphereVolume " +
			"Quobyte AzureDisk PhotonPersistentDisk PortworxVolume ScaleIO StorageOS CSI",
		"VolumeProjection": "PodCertificate", "SecretVolumeSource": "DefaultUser",
		"ConfigMapVolumeSource": "DefaultUser", "DownwardAPIVolumeSource": "DefaultUser",
		"KeyToPath": "User", "DownwardAPIVolumeFile": "User", "ServiceAccountTokenProjection": "User",
		"ClusterTrustBundleProjection": "User",
	}
	// missingFields fields are neither implemented nor rejected yet. The list may only shrink.
	missingFields = map[string]string{
		"PodSecurityContext": "SELinuxChangePolicy",
	}
	// otherFields fields are handled by other components: the API server, the scheduler, controllers or other operating
	// systems.
	otherFields = map[string]string{
		"PodSpec": "NodeSelector ServiceAccountName DeprecatedServiceAccount AutomountServiceAccountToken Affinity " +
			"SchedulerName Tolerations PreemptionPolicy " +
			"TopologySpreadConstraints SchedulingGates SchedulingGroup EvictionResponders",
		"PodSecurityContext": "WindowsOptions", "SecurityContext": "WindowsOptions",
		"EphemeralVolumeSource": "VolumeClaimTemplate", // a controller creates the claim
		"ObjectFieldSelector":   "APIVersion",          // v1 is the only value
	}
)

// Proves S23.
func TestEveryPodFieldIsClassified(t *testing.T) {
	type fate = map[string]string
	fates := map[string]map[string]bool{} // by Type.Field
	for name, all := range map[string]fate{"honoured": implementedFields, "refused": rejectedFields,
		"missing":  missingFields,
		"harmless": otherFields} {
		for typ, fields := range all {
			for _, f := range strings.Fields(fields) {
				key := typ + "." + f
				if fates[key] == nil {
					fates[key] = map[string]bool{}
				}
				if len(fates[key]) > 0 {
					t.Errorf("%s is %s and %v", key, name, fates[key])
				}
				fates[key][name] = true
			}
		}
	}
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		name := typ.Name()
		if name == "EphemeralContainerCommon" {
			name = "Container" // it has the same fields
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			key := name + "." + f.Name
			if len(fates[key]) == 0 {
				t.Errorf("%s is neither carried out nor refused: say in this file what the kubelet does about it", key)
			}
			if fates[key]["honoured"] && name != "Quantity" {
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[corev1.PodSpec]())
	for key := range fates {
		typ, field, _ := strings.Cut(key, ".")
		for got := range seen {
			if _, ok := got.FieldByName(field); got.Name() == typ && !ok {
				t.Errorf("%s is listed and no longer there", key)
			}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)),
			func(got reflect.Type) bool { return got.Name() == typ }) {
			t.Errorf("%s is listed, and no pod has a %s", key, typ)
		}
	}
}

// Proves S23.
func TestUnsupportedPodFieldsAreRejected(t *testing.T) {
	no, unmasked, mode := false, corev1.UnmaskedProcMount, corev1.GRPCProbeMode("other")
	container := func(change func(*corev1.Container)) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { change(&s.Containers[0]) }
	}
	sysctl := func(name string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
		}
	}
	for _, c := range []struct {
		name            string
		change          func(*corev1.PodSpec)
		reason, message string // message is a substring of the actual one
	}{
		{"nothing special", func(*corev1.PodSpec) {}, "", ""},
		{"another system", func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} }, "PodOSNotSupported",
			"Failed to admit pod as the OS field doesn't match node OS"},
		{"user namespace", func(s *corev1.PodSpec) { s.HostUsers = &no }, "UserNamespacesNotSupported", "hostUsers"},
		{"claim", func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, "", ""},
		{"safe sysctl", sysctl("net.ipv4.tcp_syncookies"), "", ""},
		{"safe sysctl, with slashes", sysctl("net/ipv4/tcp_syncookies"), "", ""},
		{"unsafe sysctl", sysctl("kernel.msgmax"), "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{"unsafe sysctl that is allowed", sysctl("net.core.somaxconn"), "", ""},
		{"sysctl of no namespace", sysctl("vm.swappiness"), "SysctlForbidden", "not allowlisted"},
		{"sysctl of the machine's network", func(s *corev1.PodSpec) { sysctl("net.ipv4.tcp_syncookies")(s); s.HostNetwork = true }, "SysctlForbidden", `"net.ipv4.tcp_syncookies" not allowed with host net enabled`},
		{"huge pages", func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}
		}, "FailedMount", "HugePages-2Mi"},
		{"files of a user", func(s *corev1.PodSpec) {
			user := int64(7)
			s.Volumes = []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultUser: &user}}}}
		}, "FailedMount", `"v"`},
		{"file of a user", func(s *corev1.PodSpec) {
			user := int64(7)
			s.Volumes = []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{
					User: &user}}}}}}
		}, "FailedMount", `"v"`},
		{"variable of a file", container(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}}}}
		}), "UnsupportedEnvironment", "variable A"},
		{"restart of all", container(func(c *corev1.Container) {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		}), "UnsupportedRestartRule", "RestartAllContainers"},
		{"proc", container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{
				ProcMount: &unmasked}
		}), "UserNamespacesNotSupported", "Unmasked"},
		{"socket hook", container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}}
		}), "UnsupportedHandler", "tcpSocket"},
		{"mount options", container(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", BindMountOptions: []string{"noexec"}}}
		}), "UnsupportedMountOptions", `"v"`},
		{"grpc mode", container(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Mode: &mode}}}
		}), "UnsupportedProbe", "other"},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		c.change(&p.Spec)
		end := CheckPod(p, []string{"net.core.*"})
		if (end == nil) != (c.reason == "") ||
			end != nil && (end.Reason != c.reason || !strings.Contains(end.Message, c.message)) {
			t.Errorf("%s: got %+v, want %q with %q", c.name, end, c.reason, c.message)
		}
	}
}

func TestStaticPodsCannotHaveDeviceClaims(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}}
	p.Annotations = map[string]string{SourceAnnotation: "file"}
	if end := CheckPod(p, nil); end == nil || end.Reason != "FailedPrepareDynamicResources" ||
		!strings.Contains(end.Message, `"gpu"`) {
		t.Errorf("got %+v", end)
	}
}
