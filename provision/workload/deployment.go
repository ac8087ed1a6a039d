package workload

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
)

// configDigest is the annotation of the pod template that holds a digest of the configuration. A changed digest makes
// the Deployment replace the pods.
const configDigest = "clusterctl/config-digest"

// objectsOfWorkload returns the Kubernetes objects of a workload block.
func objectsOfWorkload(w config.Workload) ([]Desired, error) {
	own := map[string]string{NameLabel: w.Name}
	labels := maps.Clone(own)
	maps.Copy(labels, w.Labels)
	meta := metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace, Labels: labels}
	var list []Desired
	add := func(typed any) error {
		d, err := toObject(w.Address, typed)
		list = append(list, d)
		return err
	}
	template := metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}}
	maps.Copy(template.Annotations, w.Annotations)
	if len(w.Config) > 0 {
		if err := add(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: meta, Data: w.Config}); err != nil {
			return nil, err
		}
		// Pods are replaced when their configuration changes.
		template.Annotations[configDigest] = mapDigest(w.Config)
	}
	replicas := int32(w.Replicas)
	pod := corev1.PodSpec{
		NodeSelector:       w.NodeSelector,
		ServiceAccountName: w.ServiceAccount,
		HostNetwork:        w.HostNetwork,
		Volumes:            newVolumes(w),
	}
	for _, c := range w.Containers {
		built, err := newContainer(c)
		if err != nil {
			return nil, err
		}
		if c.Init {
			pod.InitContainers = append(pod.InitContainers, built)
		} else {
			pod.Containers = append(pod.Containers, built)
		}
	}
	if err := add(&appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: own},
			Template: corev1.PodTemplateSpec{ObjectMeta: template, Spec: pod},
		},
	}); err != nil {
		return nil, err
	}
	if w.Service != nil {
		if err := add(newService(w, meta, own)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func newService(w config.Workload, meta metav1.ObjectMeta, selector map[string]string) *corev1.Service {
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Type: corev1.ServiceType(w.Service.Type), Selector: selector},
	}
	if w.Service.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, name := range slices.Sorted(maps.Keys(w.Service.Ports)) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: name, Port: int32(w.Service.Ports[name]), Protocol: corev1.ProtocolTCP,
			TargetPort: intstr.FromString(name), NodePort: int32(w.Service.NodePorts[name]),
		})
	}
	return s
}

func newContainer(c config.Container) (corev1.Container, error) {
	out := corev1.Container{
		Name: c.Name, Image: c.Image, ImagePullPolicy: corev1.PullPolicy(c.PullPolicy),
		Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		out.Env = append(out.Env, corev1.EnvVar{Name: name, Value: c.Env[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Ports)) {
		out.Ports = append(out.Ports,
			corev1.ContainerPort{Name: name, ContainerPort: int32(c.Ports[name]), Protocol: corev1.ProtocolTCP})
	}
	for _, path := range slices.Sorted(maps.Keys(c.Mounts)) {
		out.VolumeMounts = append(out.VolumeMounts, corev1.VolumeMount{Name: c.Mounts[path], MountPath: path})
	}
	for _, r := range []struct {
		from map[string]string
		into *corev1.ResourceList
	}{{c.Requests, &out.Resources.Requests}, {c.Limits, &out.Resources.Limits}} {
		for name, text := range r.from {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return out, err
			}
			if *r.into == nil {
				*r.into = corev1.ResourceList{}
			}
			(*r.into)[corev1.ResourceName(name)] = q
		}
	}
	out.ReadinessProbe, out.LivenessProbe, out.StartupProbe = newProbe(c.Readiness), newProbe(c.Liveness),
		newProbe(c.Startup)
	return out, nil
}

func newProbe(p *config.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: int32(p.Delay), PeriodSeconds: int32(p.Period),
		TimeoutSeconds: int32(p.Timeout), FailureThreshold: int32(p.Failures),
	}
	port := intstr.FromString(p.Port)
	if n, err := strconv.Atoi(p.Port); err == nil {
		port = intstr.FromInt32(int32(n))
	}
	switch {
	case p.HTTP != "":
		out.HTTPGet = &corev1.HTTPGetAction{Path: p.HTTP, Port: port}
	case p.TCP:
		out.TCPSocket = &corev1.TCPSocketAction{Port: port}
	default:
		out.Exec = &corev1.ExecAction{Command: p.Command}
	}
	return out
}

func newVolumes(w config.Workload) (list []corev1.Volume) {
	if len(w.Config) > 0 {
		list = append(list, corev1.Volume{Name: "config", VolumeSource: configMap(w.Name)})
	}
	for _, v := range w.Volumes {
		out := corev1.Volume{Name: v.Name}
		switch {
		case v.HostPath != "":
			out.HostPath = &corev1.HostPathVolumeSource{Path: v.HostPath}
		case v.ConfigMap != "":
			out.VolumeSource = configMap(v.ConfigMap)
		case v.Secret != "":
			out.Secret = &corev1.SecretVolumeSource{SecretName: v.Secret}
		case v.Claim != "":
			out.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim}
		default:
			out.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
		list = append(list, out)
	}
	return list
}

func configMap(name string) corev1.VolumeSource {
	return corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	}
}
