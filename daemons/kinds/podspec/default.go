package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"

	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

// DefaultPod sets defaults for pods that templates do not get.
func DefaultPod(pod *corev1.Pod) {
	defaultPodSpec(&pod.Spec)
	value.SetDefault(&pod.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for i := range pod.Spec.InitContainers {
		defaultRequests(&pod.Spec.InitContainers[i].Resources)
		defaultHostPorts(&pod.Spec, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		defaultRequests(&pod.Spec.Containers[i].Resources)
		defaultHostPorts(&pod.Spec, &pod.Spec.Containers[i])
	}
	defaultPodRequests(pod)
	value.SetEmpty(&pod.Status.Phase, corev1.PodPending)
}

// defaultPodRequests sets missing pod-level requests to the sum of the container requests, or else to the pod-level
// limits.
func defaultPodRequests(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	for name, sum := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if _, ok := r.Requests[name]; !ok && !sum.IsZero() && resourcehelper.IsSupportedPodLevelResource(name) {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = sum
		}
	}
	defaultRequests(r)
}

// defaultHostPorts sets the host ports of a pod on the host network. Templates stay as written.
func defaultHostPorts(spec *corev1.PodSpec, c *corev1.Container) {
	for i := range c.Ports {
		if spec.HostNetwork {
			value.SetEmpty(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
}

// defaultRequests sets missing requests to the limits.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// DefaultTemplate sets the defaults of a pod template, for all kinds that have one.
func DefaultTemplate(t *corev1.PodTemplateSpec) { defaultPodSpec(&t.Spec) }

func defaultPodSpec(spec *corev1.PodSpec) {
	value.SetEmpty(&spec.DNSPolicy, corev1.DNSClusterFirst)
	value.SetEmpty(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	value.SetEmpty(&spec.SchedulerName, corev1.DefaultSchedulerName)
	value.SetDefault(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	value.SetDefault(&spec.SecurityContext, corev1.PodSecurityContext{})
	// The deprecated field for the service account always equals the new one.
	value.SetEmpty(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}

func defaultContainer(c *corev1.Container) {
	value.SetEmpty(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	value.SetEmpty(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	value.SetEmpty(&c.ImagePullPolicy, pullPolicy(c.Image))
	for i := range c.Ports {
		value.SetEmpty(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			if from.FieldRef != nil {
				value.SetEmpty(&from.FieldRef.APIVersion, "v1")
			}
			if from.FileKeyRef != nil {
				value.SetDefault(&from.FileKeyRef.Optional, false)
			}
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	value.SetEmpty(&p.TimeoutSeconds, 1)
	value.SetEmpty(&p.PeriodSeconds, 10)
	value.SetEmpty(&p.SuccessThreshold, 1)
	value.SetEmpty(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		value.SetDefault(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		value.SetEmpty(&h.Path, "/")
		value.SetEmpty(&h.Scheme, corev1.URISchemeHTTP)
		if h.Port == (intstr.IntOrString{}) {
			h.Port = intstr.FromInt32(0)
		}
	}
}

func defaultVolume(v *corev1.Volume) {
	if (v.VolumeSource == corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		value.SetDefault(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		value.SetDefault(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		value.SetDefault(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		value.SetDefault(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			source := &v.Projected.Sources[i]
			if source.ServiceAccountToken != nil {
				value.SetDefault(&source.ServiceAccountToken.ExpirationSeconds, 60*60)
			}
			if source.DownwardAPI != nil {
				defaultDownward(source.DownwardAPI.Items)
			}
			if source.PodCertificate != nil {
				value.SetDefault(&source.PodCertificate.MaxExpirationSeconds, DefaultCertificateSeconds)
			}
		}
	}
	if v.HostPath != nil {
		value.SetDefault(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.ISCSI != nil {
		value.SetEmpty(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		volume.DefaultRBD(&v.RBD.RBDPool, &v.RBD.RadosUser, &v.RBD.Keyring)
	}
	if v.AzureDisk != nil {
		volume.DefaultAzureDisk(v.AzureDisk)
	}
	if v.ScaleIO != nil {
		volume.DefaultScaleIO(&v.ScaleIO.StorageMode, &v.ScaleIO.FSType)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		value.SetDefault(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	if v.Image != nil {
		value.SetEmpty(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			value.SetEmpty(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}
