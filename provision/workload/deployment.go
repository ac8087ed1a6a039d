package workload

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
)

// Annotations of the pod template that hold a digest of the configuration and of the secrets. A changed digest replaces
// the pods.
const (
	configDigest  = "clusterctl/config-digest"
	secretsDigest = "clusterctl/secrets-digest"
)

// objectsOfWorkload returns the Kubernetes objects of a workload block.
func objectsOfWorkload(w config.Workload) ([]Desired, error) {
	own := map[string]string{NameLabel: w.Name}
	labels := maps.Clone(own)
	maps.Copy(labels, w.Labels)
	meta := metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace, Labels: labels}
	objects := filesOf(w, meta)
	template, err := newTemplate(w, labels)
	if err != nil {
		return nil, err
	}
	controller, err := newController(w, meta, own, template)
	if err != nil {
		return nil, err
	}
	objects = append(objects, controller)
	if w.Service != nil {
		objects = append(objects, newService(w, meta, own))
	}
	companions, err := companionsOf(w, meta, own)
	if err != nil {
		return nil, err
	}
	objects = append(objects, companions...)
	list := make([]Desired, 0, len(objects))
	for _, typed := range objects {
		d, err := toObject(w.Address, typed)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// filesOf returns the ConfigMap and the Secret of a workload.
func filesOf(w config.Workload, meta metav1.ObjectMeta) (list []any) {
	if len(w.Config) > 0 {
		list = append(list, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: meta, Data: w.Config})
	}
	if len(w.Secrets) > 0 {
		data := map[string][]byte{}
		for name, text := range w.Secrets {
			data[name] = []byte(text)
		}
		list = append(list, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: meta, Data: data, Type: corev1.SecretTypeOpaque})
	}
	return list
}

// newTemplate returns the template of a workload's pods.
func newTemplate(w config.Workload, labels map[string]string) (corev1.PodTemplateSpec, error) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}}}
	maps.Copy(template.Annotations, w.Annotations)
	// The template of a Job cannot change, and the pods of a CronJob's next Job read the new configuration anyway.
	if w.Kind != config.KindJob && w.Kind != config.KindCronJob {
		if len(w.Config) > 0 {
			template.Annotations[configDigest] = mapDigest(w.Config)
		}
		if len(w.Secrets) > 0 {
			digest, err := slowDigest(w.Secrets, w.Namespace+"/"+w.Name)
			if err != nil {
				return template, err
			}
			template.Annotations[secretsDigest] = digest
		}
	}
	pod := &template.Spec
	pod.NodeSelector, pod.ServiceAccountName, pod.HostNetwork = w.NodeSelector, w.ServiceAccount, w.HostNetwork
	pod.Volumes, pod.RestartPolicy = newVolumes(w), corev1.RestartPolicy(w.Job.RestartPolicy)
	for _, c := range w.Containers {
		built, err := newContainer(c, w.Name)
		if err != nil {
			return template, err
		}
		if c.Init {
			pod.InitContainers = append(pod.InitContainers, built)
		} else {
			pod.Containers = append(pod.Containers, built)
		}
	}
	return template, nil
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

// newContainer returns a container. secret is the name of the workload's Secret.
func newContainer(c config.Container, secret string) (corev1.Container, error) {
	out := corev1.Container{
		Name: c.Name, Image: c.Image, ImagePullPolicy: corev1.PullPolicy(c.PullPolicy),
		Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		out.Env = append(out.Env, corev1.EnvVar{Name: name, Value: c.Env[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.SecretEnv)) {
		from := c.SecretEnv[name]
		out.Env = append(out.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{Key: from.Key,
				LocalObjectReference: corev1.LocalObjectReference{Name: cmp.Or(from.Secret, secret)}}}})
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
	if len(w.Secrets) > 0 {
		list = append(list, corev1.Volume{Name: "secrets", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: w.Name}}})
	}
	for _, c := range w.Storage {
		list = append(list, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: w.ClaimName(c)}}})
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
